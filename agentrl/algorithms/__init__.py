"""Algorithms turn rewards into credit and credit into a loss: one class in one file each."""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm, Needs, RunShape
from agentrl.algorithms.config import AlgorithmConfig
from agentrl.algorithms.registry import algorithms, resolve
from agentrl.algorithms.sample import Sample

__all__ = ["Algorithm", "AlgorithmConfig", "Needs", "RunShape", "Sample", "algorithms", "resolve"]
