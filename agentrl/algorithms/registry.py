"""Algorithm classes by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from agentrl.algorithms.base import Algorithm, RunShape
from agentrl.algorithms.cispo import CISPO
from agentrl.algorithms.dapo import DAPO
from agentrl.algorithms.distillation import Distillation
from agentrl.algorithms.dr_grpo import DrGRPO
from agentrl.algorithms.gigpo import GiGPO
from agentrl.algorithms.grpo import GRPO
from agentrl.algorithms.gspo import GSPO
from agentrl.algorithms.ppo import PPO
from agentrl.algorithms.reinforce_pp import ReinforcePP
from agentrl.algorithms.reinforce_pp_baseline import ReinforcePPBaseline
from agentrl.algorithms.remax import ReMax
from agentrl.algorithms.rloo import RLOO
from agentrl.config.options import checked_options
from agentrl.config.schema import AlgorithmSection, Config
from agentrl.errors import ConfigError
from agentrl.plugins import registry
from agentrl.plugins.kind import Kind
from agentrl.plugins.tracebacks import call_author, defined_at

GROUP = "agentrl.algorithms"


def algorithms() -> dict[str, type[Algorithm]]:
    """Return the algorithms of agentrl by name."""
    return {
        cls.name: cls
        for cls in (
            GRPO,
            DrGRPO,
            DAPO,
            GSPO,
            CISPO,
            RLOO,
            ReinforcePP,
            ReinforcePPBaseline,
            ReMax,
            GiGPO,
            PPO,
            Distillation,
        )
    }


ALGORITHMS = Kind[Algorithm](
    noun="algorithm",
    base=Algorithm,
    group=GROUP,
    argument="algo",
    files=("algorithm.py",),
    remedy="For an algorithm of your own, write ./file.py or package:Class (docs/algorithms.md).",
    shipped=tuple(EntryPoint(name, f"{cls.__module__}:{cls.__name__}", GROUP) for name, cls in algorithms().items()),
)


def resolve(name: str) -> type[Algorithm]:
    """Return the algorithm class called `name`.

    A name is `grpo`, one that an installed package announces, `package:Class` or `./file.py[:Class]`.
    Raises UnknownNameError for an unknown name, and ConfigError for a class that cannot be loaded.
    """
    return registry.resolve(ALGORITHMS, name)


def make_algorithm(section: AlgorithmSection, run: RunShape | None = None) -> Algorithm:
    """Return the algorithm of a run. Raises ConfigError for keys that are wrong or have no effect."""
    cls = resolve(section.name)
    config = checked_options(cls.Config, section.options, "algorithm", cls.__name__)
    made_at = cls.__init__ if defined_at(cls.__init__) else cls  # that of a dataclass is in no file
    algorithm: Algorithm = call_author(f"{cls.__name__} cannot be made", cls, config, run, at=made_at)
    if vars(algorithm).get("config") is not config:
        where = defined_at(made_at)
        raise ConfigError(f"{cls.__name__}{where} loses its config: call super().__init__(config, run) in __init__")
    _refuse_idle(algorithm, section.options)
    algorithm.checked_loss()
    return algorithm


def with_epochs(config: Config) -> Config:
    """Return the configuration with the epochs that the algorithm needs, unless `learner.epochs` is set."""
    if config.learner.epochs:
        return config
    epochs = resolve(config.algorithm.name).needs.epochs
    return config.model_copy(update={"learner": config.learner.model_copy(update={"epochs": epochs})})


def _refuse_idle(algorithm: Algorithm, options: Mapping[str, Any]) -> None:
    """Raise one ConfigError for the keys that were set although nothing reads them.

    False is always accepted. What would be lost silently is refused even if the algorithm's own Config asks for it:
    dynamic sampling without groups to filter, and a loss without a ratio that is to correct for the sampler.
    """
    fields, found = type(algorithm.config).model_fields, algorithm.idle_keys()
    idle = [
        f"algorithm.{key} has no effect without {needs}: leave it out"
        for key, needs in found.items()
        if key in options
        and (value := getattr(algorithm.config, key)) is not False
        and value != fields[key].get_default(call_default_factory=True)
    ]
    if not idle and "filter_zero_variance" in found and algorithm.config.filter_zero_variance:
        idle = [f"algorithm.filter_zero_variance needs {found['filter_zero_variance']}: set it to false"]
    if not idle and "old_logprobs" in found:
        needs, own = found["old_logprobs"], type(algorithm).__name__
        idle = [f"{own}: old_logprobs is sampler by default, which needs {needs}: set algorithm.old_logprobs learner"]
    if idle:
        raise ConfigError("\n".join(idle))
