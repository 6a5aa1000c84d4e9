"""The backends, one per file."""
