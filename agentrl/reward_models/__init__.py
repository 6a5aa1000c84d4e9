"""Reward models: a server for sequence-classification models, and the clients that turn scores into signals."""

from agentrl.reward_models.client import Query, RewardModel
from agentrl.reward_models.judge import Judge
from agentrl.reward_models.turns import score_turns

__all__ = ["Judge", "Query", "RewardModel", "score_turns"]
