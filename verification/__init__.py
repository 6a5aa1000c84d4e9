"""Checks of what runs on GPUs: `scripts/verify-gpu` runs them, docs/verified.md holds their results."""
