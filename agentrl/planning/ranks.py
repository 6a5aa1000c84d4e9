"""Memory of a learner rank, and of a process of scorers, by phase: which models it holds, and which one computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from agentrl.config.schema import Config, LoraSection
from agentrl.planning.models import RunModels
from agentrl.planning.need import Item, total, used
from agentrl.planning.shape import BFLOAT16, FLOAT32, ModelShape
from agentrl.planning.trained_model import TrainedModel, forward, offloaded, state, update

AHEAD = 2
"""Buckets of a publication at once (weights/delivery.py, and vLLM's packed transfers)."""
HEAP_SHARE, PROCESS = 0.22, 64 << 20
"""On a CPU: gaps between the tensors that stay, as a share of these, and code and threads of an update. Measured."""


def width_of(config: Config) -> int:
    """Return the bytes of the compute type of a resolved configuration."""
    return FLOAT32 if config.model.dtype == "float32" else BFLOAT16


@dataclass(frozen=True)
class Rank:
    """One rank of the learner of a resolved configuration."""

    config: Config
    models: RunModels

    @cached_property
    def policy(self) -> TrainedModel:
        """The policy."""
        config = self.config
        return TrainedModel(
            self.models.policy.divided(config.learner.tensor_parallel),
            config.learner,
            config.lora,
            width_of(config),
            max(config.learner.micro_batch_tokens, -(-config.model.max_context // config.learner.sequence_parallel)),
            is_on_gpu=config.device == "cuda",
            has_checkpointing=bool(config.model.gradient_checkpointing),
            is_offloaded=config.engine.placement == "colocate" and not config.learner.offload,
        )

    @cached_property
    def critic(self) -> TrainedModel | None:
        """The critic."""
        if self.models.critic is None:
            return None
        section = self.config.critic.optimizer(self.config.learner).model_copy(update={"ema": 0.0})
        return replace(
            self.policy,
            shape=self.models.critic.divided(section.tensor_parallel),
            section=section,
            lora=LoraSection(),
            has_logits=False,
            is_offloaded=self.config.scorers.offload and not section.offload,
        )

    @property
    def frozen(self) -> tuple[ModelShape, ...]:
        """Frozen models on this rank."""
        sharers = self.config.learner.tensor_parallel
        frozen = tuple(shape.divided(sharers) for shape in self.models.frozen)
        return frozen if self.config.scorers.placement == "colocate" else ()

    @property
    def state(self) -> tuple[Item, ...]:
        """What the rank holds in every phase."""
        critic = used(Item("critic", total(state(self.critic)) if self.critic else 0))
        return (*state(self.policy), *critic, *used(Item("frozen models", 0 if self._waits else sum(self._scorers))))

    @property
    def start(self) -> tuple[Item, ...]:
        """What the load of a model takes on a device: at stage 3 its share and one tensor, else all of it."""
        loaded = map(_loaded, self._trained)
        return used(Item("loaded model", max([*loaded, *self._scorers], default=0)))

    @property
    def loading(self) -> tuple[Item, ...]:
        """What the load of a model takes in CPU memory: all of it in float32, at stage 3 one tensor, or all experts."""
        loaded = map(_loading, self._trained)
        frozen = (FLOAT32 * shape.parameters for shape in self.models.frozen if self.frozen)
        return used(Item("loaded model", max([*loaded, *frozen], default=0)))

    @property
    def scoring(self) -> tuple[Item, ...]:
        """What columns before an update add."""
        passes = [forward(self.policy, has_gradient=False)] if self.models.has_old or self.frozen else []
        passes += [forward(self.critic, has_gradient=False)] if self.critic else []
        lent = Item("frozen models", sum(self._scorers) if self._waits else 0)
        return used(lent, *max(passes, key=total, default=()))

    @property
    def update(self) -> tuple[Item, ...]:
        """What the update of the policy or that of the critic adds."""
        parts = [update(self.policy), *([update(self.critic)] if self.critic else [])]
        return max(parts, key=total)

    @property
    def publication(self) -> tuple[Item, ...]:
        """Buckets, and one tensor that is gathered or merged in float32 and cast."""
        config, width = self.config, self.policy.width
        if config.lora.publish == "adapter":
            return used(Item("adapter", width * self.policy.trained))
        largest = self.models.policy.largest
        is_made = self.policy.stage == 3 or config.lora.rank > 0 or config.learner.tensor_parallel > 1
        bucket = max(config.weights.bucket_mib << 20, largest * width)
        return used(Item("tensor", largest * (FLOAT32 * is_made + width)), Item("buckets", AHEAD * bucket))

    @property
    def host(self) -> tuple[Item, ...]:
        """What the rank of a GPU machine holds in CPU memory."""
        parts = (offloaded(self.policy), offloaded(self.critic) if self.critic else ())
        return used(
            Item("offloaded optimizer", sum(map(total, parts))),
            Item("offloaded frozen models", sum(self._scorers) if self._waits else 0),
        )

    @property
    def _trained(self) -> list[TrainedModel]:
        """Models with an optimizer that are whole for a moment, as quantized ones never are."""
        is_quantized = bool(self.config.lora.rank and self.config.lora.load_in_4bit)
        return [*([] if is_quantized else [self.policy]), *([self.critic] if self.critic else [])]

    @property
    def _scorers(self) -> list[int]:
        """Bytes of each frozen model; a reference that moves is float32."""
        width = FLOAT32 if self.models.reference_moves else self.policy.width
        return [shape.frozen_bytes(width) for shape in self.frozen]

    @property
    def _waits(self) -> bool:
        return self.config.scorers.offload and self.config.device == "cuda"


def _loaded(model: TrainedModel) -> int:
    if model.stage == 3:
        return FLOAT32 * (model.shard(model.shape.parameters, 3) + model.shape.largest)
    return model.shape.frozen_bytes(model.width if model.lora.rank else FLOAT32)


def _loading(model: TrainedModel) -> int:
    shape = model.shape
    if model.stage < 3:
        others = (model.section.tensor_parallel - 1) * shape.matrices  # a rank loads all, then leaves the others
        return FLOAT32 * (shape.parameters + others)
    has_experts = shape.active < shape.parameters
    return BFLOAT16 * shape.parameters if has_experts else FLOAT32 * shape.largest


def on_cpu(rank: Rank) -> tuple[Item, ...]:
    """Return what the process of a rank on a CPU takes at its peak, above its imports."""
    staying = total((*rank.state, *(item for item in rank.update if item.name == "gradients")))
    working = (*rank.state, *rank.update, Item("heap", PROCESS + int(HEAP_SHARE * staying)))
    return (*working, *used(Item("loading", max(0, total(rank.loading) - total(working)))))


def separate_scorers(rank: Rank) -> tuple[Item, ...]:
    """Return the memory of a process of frozen models alone."""
    models = sum(shape.frozen_bytes(rank.policy.width) for shape in rank.models.frozen)
    return used(Item("frozen models", models), *forward(replace(rank.policy, lora=LoraSection()), has_gradient=False))
