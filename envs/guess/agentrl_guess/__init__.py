"""Guess a hidden number in several turns: the smallest multi-turn environment."""

from agentrl_guess.env import GuessConfig, GuessEnv

__all__ = ["GuessConfig", "GuessEnv"]
