"""The check of an environment before a run: nobody outside agentrl imports it."""
