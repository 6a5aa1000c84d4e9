"""agentrl: reinforcement learning for language-model agents, centred on environment plugins."""

__version__ = "0.1.0"
