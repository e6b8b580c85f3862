"""The config groups: installed with the package, so that they are found from a checkout and from a wheel alike."""
