"""The sections: each module has ``measure(options) -> Report``."""
