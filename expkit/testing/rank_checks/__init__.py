"""What the facts of `expkit.testing.DistributedSuite` call on each rank."""
