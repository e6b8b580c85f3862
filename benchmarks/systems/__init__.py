"""The systems: each module has ``train(work, directory) -> Outcome``."""
