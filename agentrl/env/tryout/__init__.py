"""Tries an environment out before a run. Internal: nothing outside agentrl imports it."""
