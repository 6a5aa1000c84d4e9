"""Discrete environments of Gymnasium as environments of agentrl: `--env gym:ID`."""

from agentrl_gymnasium.env import Gymnasium

__all__ = ["Gymnasium"]
