"""From a configuration to one that fits its machine: unset keys are chosen, and what cannot fit is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentrl.algorithms.configured import configured_algorithm
from agentrl.config.machine import GIB, Machine
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.planning.hardware import Hardware
from agentrl.planning.meta import ConfigReader
from agentrl.planning.models import RunModels
from agentrl.planning.need import Fit, Need
from agentrl.planning.placement import for_algorithm
from agentrl.planning.plan import Plan
from agentrl.planning.remedy import Remedy, fastest, remedies


def fitted_run(
    requested: Config,
    machine: Machine,
    *,
    learns: bool = True,
    may_download: bool = True,
    resumes: Path | None = None,
) -> Config:
    """Return the resolved configuration, in which keys without a value have one at which the run fits.

    Raises ConfigError with the nearest setting that fits if a device has too little memory, or for what cannot run for
    another reason. If the run in the folder `resumes` is resumed, the setting differs only in what a resume may change.
    A model whose config.json cannot be read is not counted: the run will say why when it loads it.
    """
    config = resolve_run(for_algorithm(requested, learns=learns), machine, learns=learns)
    try:
        models = RunModels.of(config, ConfigReader(may_download), learns=learns)
    except ConfigError:
        return config
    return fitted(requested, machine, Plan(config, models, Hardware.of(machine), resumes=resumes)).config


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
    advice = [remedy.advice for remedy in found]
    if plan.resumes and all(remedy.nodes for remedy in found):
        advice.append(
            "no setting that was tried and that a resume may change fits here: resume on more or larger machines, or "
            "start a new run from the newest checkpoint, with other settings: `agentrl train --config "
            f"{plan.resumes / 'config.toml'} --model {plan.resumes} --out OTHER`"
        )
    advice = advice or [f"none of the settings that were tried fits: use {larger}"]
    return "\n".join([*map(_too_little, plan.exceeding), *advice, "`agentrl plan` shows the arithmetic"])


def _too_little(need: Need) -> str:
    largest = sorted(need.items, key=lambda item: -item.nbytes)[:4]
    items = ", ".join(f"{item.name} {item.nbytes / GIB:.1f}" for item in largest)
    return (
        f"{need.device}: {need.phase.value} needs {need.nbytes / GIB:.1f} GiB, and {need.limit} "
        f"{need.capacity / GIB:.1f} GiB ({items})"
    )
