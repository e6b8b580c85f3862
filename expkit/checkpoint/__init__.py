"""Checkpoints on disk: atomic, verified, written in the background, without pickle."""

from expkit.checkpoint.store import CheckpointStore
from expkit.core.store import CheckpointInfo, MemoryStore, Store

__all__ = ["CheckpointInfo", "CheckpointStore", "MemoryStore", "Store"]
