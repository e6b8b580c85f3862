"""What an experiment is, in plain Python and NumPy: the loop and the contracts around it."""
