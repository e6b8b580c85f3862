"""The processes of a run: how they are started, watched and stopped."""
