"""Reward models: a server for sequence-classification models, and the clients that turn scores into signals."""

from agentrl.reward_models.client import Query, RewardModel

__all__ = ["Query", "RewardModel"]
