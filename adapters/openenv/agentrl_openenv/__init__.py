"""Environment servers of OpenEnv as environments of agentrl: `--env openenv:URL`."""

from agentrl_openenv.env import OpenEnv

__all__ = ["OpenEnv"]
