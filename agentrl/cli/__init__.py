"""The `agentrl` command: one file per command; nothing is computed here."""
