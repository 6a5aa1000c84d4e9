"""Memory of a learner rank, and of processes of scorers and reward models: what each holds, and which one computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from agentrl.config.schema import Config, LearnerSection, LoraSection
from agentrl.planning.engine import CONTEXT
from agentrl.planning.models import RunModels
from agentrl.planning.need import Item, total, used
from agentrl.planning.shape import BFLOAT16, FLOAT32, ModelShape
from agentrl.planning.trained_model import TrainedModel, forward, offloaded, parked, pinned_by_loading, state, update

AHEAD = 2
"""Buckets of a publication at once (weights/delivery.py, and vLLM's packed transfers)."""
HEAP_SHARE, PROCESS = 0.22, 64 << 20
"""On a CPU: gaps between the tensors that stay, as a share of these, and code and threads of an update. Measured."""

SCORED_TOKENS = 16_384
"""Tokens of a batch of a reward model, with padding (`reward_models/batcher.py`); a longer text is one alone."""


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
            longest=config.model.max_context,
        )

    @cached_property
    def critic(self) -> TrainedModel | None:
        """The critic, wherever it is."""
        if self.models.critic is None:
            return None
        section = self.config.critic.optimizer(self.config.learner).model_copy(update={"ema": 0.0})
        return replace(
            self.policy,
            shape=self.models.critic.divided(section.tensor_parallel),
            section=section,
            lora=LoraSection(),
            has_logits=False,
            is_offloaded=self.config.scorers.offload and not self.is_critic_apart and not section.offload,
        )

    @property
    def is_critic_apart(self) -> bool:
        """Whether the critic has ranks of its own."""
        return self.config.critic.placement == "separate"

    @property
    def _critics(self) -> list[TrainedModel]:
        """The critic, if it is on this rank."""
        return [self.critic] if self.critic and not self.is_critic_apart else []

    @property
    def frozen(self) -> tuple[ModelShape, ...]:
        """Frozen models on this rank."""
        sharers = self.config.learner.tensor_parallel
        frozen = tuple(shape.divided(sharers) for shape in self.models.frozen)
        return frozen if self.config.scorers.placement != "separate" else ()

    @property
    def state(self) -> tuple[Item, ...]:
        """What the rank holds in every phase."""
        critic = used(Item("critic", sum(total(state(critic)) for critic in self._critics)))
        frozen = Item("frozen models", 0 if self._has_scorers_away else sum(self._scorers))
        return (*state(self.policy), *critic, *used(frozen))

    @property
    def apart(self) -> CriticRank | None:
        """A rank of the critic, if it is separate."""
        return CriticRank(self.critic) if self.critic and self.is_critic_apart else None

    @property
    def start(self) -> tuple[Item, ...]:
        """What the load of a model takes on a device: at stage 3 its share and one tensor, else all of it."""
        loaded = map(_loaded, self._trained)
        tensor = FLOAT32 * max((shape.largest for shape in self.frozen), default=0) * self._shares_scorers
        frozen = (tensor + nbytes * (not self._parks_scorers) for nbytes in self._scorers)
        return used(Item("loaded model", max([*loaded, *frozen], default=0)))

    @property
    def loading(self) -> tuple[Item, ...]:
        """What the load of a model takes in CPU memory: all of it in float32, at stage 3 one tensor, or all experts."""
        sharers = self.config.learner.tensor_parallel
        loaded = (_read(model.shape, model.stage, sharers) for model in self._trained)
        frozen = (_read(shape, 3 if self._shares_scorers else 0, sharers) for shape in self.frozen)
        return used(Item("loaded model", max([*loaded, *frozen], default=0)))

    @property
    def reward_models(self) -> tuple[Item, ...]:
        """What reward models hold that share the rank's GPU: those of the rank whose models take most."""
        if not self.config.reward.is_shared or not self.models.rewards:
            return ()
        each = [CONTEXT + total(reward_model(self.config, shape)) for shape in self.models.rewards]
        ranks = self.config.learner.ranks
        return used(Item("reward models", max(sum(each[first::ranks]) for first in range(min(ranks, len(each))))))

    @property
    def scoring(self) -> tuple[Item, ...]:
        """What columns before an update add."""
        scoring = [*([self.policy] if self.models.has_old else []), *map(self.frozen_model, self.frozen)]
        passes = [forward(model, has_gradient=False) for model in (*scoring, *self._critics)]
        lent = Item("frozen models", sum(self._scorers) if self._waits else 0)
        return used(lent, *max(passes, key=total, default=()))

    def frozen_model(self, shape: ModelShape) -> TrainedModel:
        """Return a model of this shape that computes logprobs as the policy does, without adapters."""
        return replace(self.policy, shape=shape, lora=LoraSection())

    @property
    def update(self) -> tuple[Item, ...]:
        """What the update of the policy or that of the critic adds."""
        return max(map(update, (self.policy, *self._critics)), key=total)

    @property
    def published(self) -> int:
        """The bytes of what the engines receive in a publication."""
        is_adapter = self.config.lora.publish == "adapter"
        return self.policy.width * (self.policy.trained if is_adapter else self.models.policy.parameters)

    @property
    def publication(self) -> tuple[Item, ...]:
        """Buckets, and one tensor that is gathered or merged in float32 and cast."""
        config, width = self.config, self.policy.width
        if config.lora.publish == "adapter":
            return used(Item("adapter", self.published))
        largest = self.models.policy.largest
        is_made = self.policy.stage == 3 or config.lora.rank > 0 or config.learner.tensor_parallel > 1
        bucket = max(config.weights.bucket_mib << 20, largest * width)
        return used(Item("tensor", largest * (FLOAT32 * is_made + width)), Item("buckets", AHEAD * bucket))

    @property
    def host(self) -> tuple[Item, ...]:
        """What the rank of a GPU machine holds in CPU memory."""
        models = (self.policy, *self._critics)
        sharded = map(self.frozen_model, self.frozen if self._shares_scorers else ())
        return used(
            Item("offloaded optimizer", sum(total(offloaded(model)) for model in models)),
            Item("offloaded parameters", sum(total(parked(model)) for model in models)),
            Item("offloaded frozen models", sum(self._scorers) if self._has_scorers_away else 0),
            Item("pinned by loading", max(map(pinned_by_loading, (*models, *sharded)))),
        )

    @property
    def _trained(self) -> list[TrainedModel]:
        """Models with an optimizer that are whole for a moment, as quantized ones never are."""
        is_quantized = bool(self.config.lora.rank and self.config.lora.load_in_4bit)
        return [*([] if is_quantized else [self.policy]), *self._critics]

    @property
    def _scorers(self) -> list[int]:
        """Bytes that the rank has of each frozen model; a reference that moves is float32."""
        width = FLOAT32 if self.models.reference_moves else self.policy.width
        sizes = (shape.frozen_bytes(width) for shape in self.frozen)
        return [self.policy.shard(nbytes, 3) if self._shares_scorers else nbytes for nbytes in sizes]

    @property
    def _shares_scorers(self) -> bool:
        """True if the ranks divide frozen models, as at stage 3 those that neither move nor wait in CPU memory."""
        return self.policy.stage == 3 and not (self.models.reference_moves or self.config.scorers.offload)

    @property
    def _parks_scorers(self) -> bool:
        """True if the shares of frozen models are in CPU memory, as those of the policy."""
        return self._shares_scorers and self.policy.is_parked

    @property
    def _has_scorers_away(self) -> bool:
        """True if frozen models are in CPU memory, for whatever reason."""
        return self._waits or self._parks_scorers

    @property
    def _waits(self) -> bool:
        return self.config.scorers.offload and self.config.device == "cuda"


@dataclass(frozen=True)
class CriticRank:
    """One rank of a separate critic, by the same phases."""

    critic: TrainedModel

    @property
    def state(self) -> tuple[Item, ...]:
        """What the rank holds in every phase."""
        return state(self.critic)

    @property
    def start(self) -> tuple[Item, ...]:
        """What the load takes on a device."""
        return used(Item("loaded model", _loaded(self.critic)))

    @property
    def loading(self) -> tuple[Item, ...]:
        """What the load takes in CPU memory."""
        return used(
            Item("loaded model", _read(self.critic.shape, self.critic.stage, self.critic.section.tensor_parallel))
        )

    @property
    def scoring(self) -> tuple[Item, ...]:
        """What the values before an update add."""
        return forward(self.critic, has_gradient=False)

    @property
    def update(self) -> tuple[Item, ...]:
        """What the update adds."""
        return update(self.critic)

    @property
    def host(self) -> tuple[Item, ...]:
        """What the rank of a GPU machine holds in CPU memory."""
        critic = self.critic
        return used(
            Item("offloaded optimizer", total(offloaded(critic))),
            Item("offloaded parameters", total(parked(critic))),
            Item("pinned by loading", pinned_by_loading(critic)),
        )


def _loaded(model: TrainedModel) -> int:
    if model.stage == 3:
        share = 0 if model.is_parked else model.shard(model.shape.parameters, 3)
        return FLOAT32 * (share + model.shape.largest)
    return model.shape.frozen_bytes(model.width if model.lora.rank else FLOAT32)


def _read(shape: ModelShape, stage: int, sharers: int) -> int:
    """Return the CPU memory in which a rank reads a model; of matrices that are shared it reads those of the others."""
    if stage < 3:
        return FLOAT32 * (shape.parameters + (sharers - 1) * shape.matrices)
    has_experts = shape.active < shape.parameters
    return BFLOAT16 * shape.parameters if has_experts else FLOAT32 * shape.largest


def on_cpu(rank: Rank | CriticRank) -> tuple[Item, ...]:
    """Return what the process of a rank on a CPU takes at its peak, above its imports."""
    staying = total((*rank.state, *(item for item in rank.update if item.name == "gradients")))
    working = (*rank.state, *rank.update, Item("heap", PROCESS + int(HEAP_SHARE * staying)))
    return (*working, *used(Item("loading", max(0, total(rank.loading) - total(working)))))


def separate_scorers(rank: Rank) -> tuple[Item, ...]:
    """Return the memory of a process of frozen models alone."""
    frozen = rank.models.frozen
    models = sum(shape.frozen_bytes(rank.policy.width) for shape in frozen)
    passes = (forward(rank.frozen_model(shape), has_gradient=False) for shape in frozen)
    return used(Item("frozen models", models), *max(passes, key=total, default=()))


def reward_model(config: Config, shape: ModelShape) -> tuple[Item, ...]:
    """Return the memory of the process of a reward model: its weights as they are stored, and a pass over texts."""
    is_on_gpu, tokens = config.device == "cuda", max(SCORED_TOKENS, config.model.max_context)
    model = TrainedModel(
        shape,
        LearnerSection(),
        LoraSection(),
        shape.stored,
        tokens,
        is_on_gpu=is_on_gpu,
        has_checkpointing=False,
        has_logits=False,
    )
    return used(Item("weights", model.width * shape.parameters), *forward(model, has_gradient=False))
