"""Environments for the clients of OpenEnv (`agentrl env serve --protocol openenv`)."""

from agentrl.openenv.server import OpenEnvServer, ServerLimits

__all__ = ["OpenEnvServer", "ServerLimits"]
