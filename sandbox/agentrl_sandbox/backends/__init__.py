"""The ways to make sandboxes, one per file."""
