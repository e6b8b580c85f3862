"""What a run leaves behind: its directory, records, logs and TensorBoard files."""
