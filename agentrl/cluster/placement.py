"""Which GPUs the processes get: their own, or one that engine i and learner rank i share in turns.

Sharing is not yet verified on a GPU.
"""

from __future__ import annotations

from agentrl.config.schema import Config

LEARNER_SHARE = 0.5  # for Ray to place them; the one whose turn it is uses the whole GPU


def is_shared(config: Config) -> bool:
    """Return whether engine i and learner rank i take turns on one GPU."""
    return config.engine.placement == "colocate"


def bundles(config: Config) -> list[dict[str, float]] | None:
    """Return the resources of each shared GPU, to reserve at the start; None where nothing is shared.

    After them come a bundle for scorers outside the learner's ranks, and one for each model that plays roles.
    """
    if not is_shared(config):
        return None
    others = (config.scorers.placement == "separate") + len(config.role_models)
    return [{"GPU": 1.0}] * (_shared_gpus(config) + others)


def _shared_gpus(config: Config) -> int:
    return max(config.engine.count, config.learner.ranks)


def bundle(config: Config, index: int) -> int | None:
    """Return the bundle of engine or rank `index`."""
    return index if is_shared(config) else None


def engine_gpus(config: Config) -> float:
    """Return how many GPUs an engine needs."""
    if is_shared(config):
        return 1 - LEARNER_SHARE
    return float(config.engine.tensor_parallel) if config.device == "cuda" else 0.0


def learner_gpus(config: Config) -> float:
    """Return how many GPUs a learner rank needs."""
    return LEARNER_SHARE if is_shared(config) else float(config.device == "cuda")


def scorers_bundle(config: Config) -> int | None:
    """Return the bundle of scorers outside the learner's ranks."""
    return _shared_gpus(config) if is_shared(config) else None


def scorers_gpus(config: Config) -> float:
    """Return how many GPUs such scorers need."""
    return float(config.device == "cuda")


def role_bundle(config: Config, index: int) -> int | None:
    """Return the bundle of the engine of role model `index`."""
    return _shared_gpus(config) + (config.scorers.placement == "separate") + index if is_shared(config) else None


def role_gpus(config: Config) -> float:
    """Return how many GPUs the engine of a model that plays roles needs."""
    return float(config.device == "cuda")
