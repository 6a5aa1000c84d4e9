"""The dry run of an environment, before a training run. Internal: nothing outside agentrl imports it."""
