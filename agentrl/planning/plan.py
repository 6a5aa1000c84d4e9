"""The plan of a run: the memory of every device and phase, the seconds of a step, and whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from agentrl.config.models import check_longest
from agentrl.config.packing import unknown
from agentrl.config.schema import Config
from agentrl.config.sharing import check_heads, check_matrices, check_plan, check_positions
from agentrl.config.validate import check_targets, counted
from agentrl.errors import ConfigError
from agentrl.planning.duration import Seconds, seconds_of, step_s
from agentrl.planning.hardware import Hardware
from agentrl.planning.models import RunModels
from agentrl.planning.need import Fit, Need
from agentrl.planning.needs import needs_of
from agentrl.planning.ranks import Rank

PROMPT_TOKENS = 256
"""Tokens of a prompt, for the seconds; memory is planned for sequences of `model.max_context`."""


@dataclass(frozen=True)
class Plan:
    """What a resolved configuration needs on some hardware.

    Raises ConfigError if ranks or the GPUs of an engine cannot divide what they share of a model, for a model that the
    learner cannot train or that cannot read `model.max_context`, and for adapters on layers that the policy lacks.
    """

    config: Config
    models: RunModels
    hardware: Hardware
    prompt_tokens: int = PROMPT_TOKENS
    resumes: Path | None = None
    """The folder of the run that is resumed so; None for a new run."""

    def __post_init__(self) -> None:
        self._check_engine()
        self._check_adapters()
        models, learner = self.models, self.config.learner
        shapes = {"the policy": models.policy, "the critic": models.critic}
        shapes |= {f"scorer {number}": shape for number, shape in enumerate(models.frozen, 1)}
        for name, shape in shapes.items():
            if shape is None:
                continue
            named, heads = f"{name} ({shape.kind})", (shape.heads, shape.kv_heads)
            if models.learns and shape.unpackable:
                raise unknown(named, shape.unpackable)
            if shape.context > 0:  # XLNet says -1
                check_longest(named, shape.context, self.config.model.max_context)
            if models.learns:
                check_heads(named, *heads, learner.sequence_parallel)
                check_positions(named, shape.rotary, learner.sequence_parallel)
                check_plan(named, shape.styles, learner.tensor_parallel)
                check_matrices(named, *heads, shape.inner, learner.tensor_parallel)

    def _check_engine(self) -> None:
        engine, shape = self.config.engine, self.models.policy
        named = f"the policy ({shape.kind})"
        check_heads(named, shape.heads, shape.kv_heads, engine.tensor_parallel, "engine.tensor_parallel", "GPUs")
        if engine.pipeline_parallel > shape.layers:
            raise ConfigError(
                f"engine.pipeline_parallel {engine.pipeline_parallel}: {named} has {counted(shape.layers, 'layer')}, "
                f"of which each group of GPUs needs one. Possible are 1 to {shape.layers}"
            )

    def _check_adapters(self) -> None:
        lora = self.config.lora
        if lora.rank and self.models.learns:
            check_targets(lora.layers, {name for linear in self.models.policy.linears for name in linear.names})

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """Memory by device and phase."""
        return tuple(needs_of(self.config, self.models, self.hardware))

    @cached_property
    def fits(self) -> bool:
        """Whether every need fits. Counts no further than to the first that does not."""
        return all(need.fit is Fit.FITS for need in needs_of(self.config, self.models, self.hardware))

    @property
    def may_fit(self) -> bool:
        """Whether no need exceeds its device. Counts no further than to the first that does."""
        return all(need.fit is not Fit.EXCEEDS for need in needs_of(self.config, self.models, self.hardware))

    @cached_property
    def seconds(self) -> tuple[Seconds, ...]:
        """Seconds of a step by phase."""
        return seconds_of(self.config, self.models, self.hardware, self.prompt_tokens)

    @property
    def published(self) -> int:
        """Bytes that the engines receive after a step."""
        return Rank(self.config, self.models).published if self.models.learns else 0

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return step_s(self.config, self.seconds)

    @property
    def fit(self) -> Fit:
        """The verdict on the need that fits worst."""
        order = list(Fit)
        return max((need.fit for need in self.needs), key=order.index)

    @property
    def exceeding(self) -> tuple[Need, ...]:
        """The worst need of each device that has too little."""
        worst: dict[str, Need] = {}
        for need in self.needs:
            if need.fit is Fit.EXCEEDS and (need.device not in worst or need.nbytes > worst[need.device].nbytes):
                worst[need.device] = need
        return tuple(worst.values())
