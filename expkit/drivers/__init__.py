"""One package for each framework, with the same names: what a driver's verbs mean there."""
