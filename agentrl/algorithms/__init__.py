"""Algorithms turn rewards into credit and credit into a loss: one class in one file each."""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm, Needs, RunShape
from agentrl.algorithms.config import AlgorithmConfig
from agentrl.algorithms.credit import centred, minus_mean_of_others, returns_by_turn, returns_to_go, spread, whiten
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.registry import algorithms, resolve
from agentrl.algorithms.reinforce_pp import ReinforcePP
from agentrl.algorithms.rloo import RLOO
from agentrl.algorithms.sample import Sample

__all__ = [
    "GRPO",
    "RLOO",
    "Algorithm",
    "AlgorithmConfig",
    "Needs",
    "ReinforcePP",
    "RunShape",
    "Sample",
    "algorithms",
    "centred",
    "minus_mean_of_others",
    "resolve",
    "returns_by_turn",
    "returns_to_go",
    "spread",
    "whiten",
]
