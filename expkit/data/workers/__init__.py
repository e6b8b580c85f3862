"""Worker processes that read batches ahead; see docs/adr/0015-workers-of-our-own.md."""
