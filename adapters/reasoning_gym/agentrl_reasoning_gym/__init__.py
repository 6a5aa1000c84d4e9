"""The datasets of reasoning-gym as environments of agentrl: `--env rg:NAME`."""

from agentrl_reasoning_gym.env import ReasoningGym

__all__ = ["ReasoningGym"]
