"""What an experiment is, in the standard library and NumPy alone: the loop and the contracts around it."""
