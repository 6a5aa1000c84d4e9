"""Environments outside the worker's process: in another interpreter, or on another machine."""
