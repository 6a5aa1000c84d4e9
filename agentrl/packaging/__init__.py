"""Environments as packages: what one contains, how to begin one, and how to pin the versions of several."""
