"""The config groups, installed with the package: found from a checkout and from a wheel alike."""
