"""Imports Paddle without the notices that say nothing to a user of expkit."""

from __future__ import annotations

import warnings


def import_paddle_quietly() -> None:
    """Import paddle without the hint at ccache, which matters only to those who compile it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No ccache found")
        import paddle

    paddle.disable_signal_handler()  # SIGTERM is the trainer's to answer
