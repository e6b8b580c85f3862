"""What there is to save, and how each framework saves it itself."""
