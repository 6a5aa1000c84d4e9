"""Algorithms turn rewards into credit and credit into a loss: one class in one file each.

Exported are the classes, what a new one is made of, and the functions on which credit is built.
"""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm, Needs, RunShape
from agentrl.algorithms.cispo import CISPO
from agentrl.algorithms.config import AlgorithmConfig, Loss
from agentrl.algorithms.credit import (
    centred,
    difference,
    gae,
    minus_mean_of_others,
    remaining,
    returns_by_turn,
    spread,
    token_returns,
    whiten,
)
from agentrl.algorithms.dapo import DAPO
from agentrl.algorithms.distillation import Distillation
from agentrl.algorithms.dr_grpo import DrGRPO
from agentrl.algorithms.driver import assign
from agentrl.algorithms.gigpo import GiGPO
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.gspo import GSPO
from agentrl.algorithms.own_loss import reads
from agentrl.algorithms.ppo import PPO
from agentrl.algorithms.registry import algorithms, resolve
from agentrl.algorithms.rehearsal import by_hand
from agentrl.algorithms.reinforce_pp import ReinforcePP
from agentrl.algorithms.reinforce_pp_baseline import ReinforcePPBaseline
from agentrl.algorithms.remax import ReMax
from agentrl.algorithms.rloo import RLOO
from agentrl.algorithms.sample import Column, Reward, Sample

__all__ = [
    "CISPO",
    "DAPO",
    "GRPO",
    "GSPO",
    "PPO",
    "RLOO",
    "Algorithm",
    "AlgorithmConfig",
    "Column",
    "Distillation",
    "DrGRPO",
    "GiGPO",
    "Loss",
    "Needs",
    "ReMax",
    "ReinforcePP",
    "ReinforcePPBaseline",
    "Reward",
    "RunShape",
    "Sample",
    "algorithms",
    "assign",
    "by_hand",
    "centred",
    "difference",
    "gae",
    "minus_mean_of_others",
    "reads",
    "remaining",
    "resolve",
    "returns_by_turn",
    "spread",
    "token_returns",
    "whiten",
]
