"""From a configuration to one that fits its machine: unset keys are chosen, and what cannot fit is refused."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.algorithms.configured import configured_algorithm
from agentrl.algorithms.registry import with_epochs
from agentrl.config.machine import GIB, Machine
from agentrl.config.models import config_json
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.planning.hardware import Hardware
from agentrl.planning.meta import read_shape
from agentrl.planning.models import RunModels
from agentrl.planning.need import Fit, Need
from agentrl.planning.placement import placed
from agentrl.planning.plan import Plan
from agentrl.planning.remedy import Remedy, fastest, remedies
from agentrl.planning.shape import ModelShape


def fitted_run(requested: Config, machine: Machine, *, learns: bool = True, may_download: bool = True) -> Config:
    """Return the resolved configuration, in which keys without a value have one at which the run fits.

    Raises ConfigError with the nearest setting that fits if a device has too little memory, or for what cannot run for
    another reason. A model whose config.json cannot be read is not counted: the run will say why when it loads it.
    """
    requested = for_algorithm(requested, learns=learns)
    config = resolve_run(requested, machine, learns=learns)
    try:
        models = RunModels.of(config, shape_at_hand if not may_download else shape_named, learns=learns)
    except ConfigError:
        return config
    return fitted(requested, machine, Plan(config, models, Hardware.of(machine))).config


def for_algorithm(requested: Config, *, learns: bool = True) -> Config:
    """Return the configuration with what its algorithm decides where no key does: epochs, and the place of models."""
    return placed(with_epochs(requested) if learns else requested, learns=learns)


def fitted(requested: Config, machine: Machine, plan: Plan) -> Plan:
    """Return the plan, or that of the nearest setting of keys without a value.

    Raises ConfigError if it cannot fit, or if the algorithm refuses the settings, with which no other would help.
    """
    if plan.fits:
        return plan
    if plan.models.learns:
        configured_algorithm(plan.config)
    if chosen := fastest(requested, machine, plan):
        return chosen.plan
    if plan.fit is Fit.TIGHT:
        return plan
    raise ConfigError(_refusal(plan, remedies(requested, machine, plan)))


def _refusal(plan: Plan, found: Sequence[Remedy]) -> str:
    """Return why a plan does not fit, a line for each device, and what to do."""
    larger = "GPUs with more memory" if plan.config.device == "cuda" else "a smaller model"
    advice = [remedy.advice for remedy in found] or [f"no setting fits: use {larger}"]
    return "\n".join([*map(_too_little, plan.exceeding), *advice, "`agentrl plan` shows the arithmetic"])


def _too_little(need: Need) -> str:
    largest = sorted(need.items, key=lambda item: -item.nbytes)[:4]
    items = ", ".join(f"{item.name} {item.nbytes / GIB:.1f}" for item in largest)
    return (
        f"{need.device}: {need.phase.value} needs {need.nbytes / GIB:.1f} GiB, and {need.limit} "
        f"{need.capacity / GIB:.1f} GiB ({items})"
    )


def shape_named(name: str) -> ModelShape:
    """Return the shape of a model by its name; its config.json may be downloaded."""
    return read_shape(config_json(name))


def shape_at_hand(name: str) -> ModelShape:
    """Return the shape of a model whose config.json is on this machine. Raises ConfigError for any other."""
    return read_shape(config_json(name, may_download=False))
