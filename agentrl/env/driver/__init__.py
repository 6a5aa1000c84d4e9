"""Drives the objects that authors write. Internal: nothing outside agentrl imports it."""
