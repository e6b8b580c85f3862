"""One package for each framework, all with the same names: what a verb of the driver means there."""
