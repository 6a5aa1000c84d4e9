"""The policy of a learner rank: a batch with credit becomes optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from agentrl.algorithms.adaptive import check_meters
from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.config import AlgorithmConfig
from agentrl.algorithms.sample import TrainSequence
from agentrl.config.schema import LearnerSection
from agentrl.learner.batch import split_updates, with_gradient
from agentrl.learner.deepspeed import DeepSpeedModel
from agentrl.learner.lora import add_adapters
from agentrl.learner.loss import MicroBatchLoss
from agentrl.learner.lr_schedule import learning_rate
from agentrl.learner.micro_batch import MicroBatch
from agentrl.learner.model import freeze, load_model
from agentrl.learner.part import Layout, Part
from agentrl.learner.sharding import Sharding
from agentrl.learner.spec import LearnerSpec
from agentrl.learner.updates import Updates, gathered, update_order
from agentrl.losses.terms import Meter, means


def load_policy(spec: LearnerSpec) -> DeepSpeedModel:
    """Load the model that is trained: all of it, or adapters on frozen weights."""
    model = load_model(
        spec.model,
        spec.compute,
        gradient_checkpointing=spec.gradient_checkpointing,
        quantized_on=spec.torch_device if spec.lora.load_in_4bit else None,
        sharding=Sharding.of(spec.learner, spec.compute),
        sharers=spec.learner.tensor_parallel,
    )
    if spec.lora.rank:
        if not spec.lora.load_in_4bit:
            freeze(model)
        add_adapters(model.model, spec.lora)
    return DeepSpeedModel(model, spec.learner, spec.learner.ema, offload=spec.yields_gpus and not spec.learner.offload)


@dataclass(frozen=True)
class Policy:
    """The model that is trained, and the algorithm that trains it. All ranks call each method together.

    `steps` is the length of its learning rate schedule in batches.
    """

    model: DeepSpeedModel
    algorithm: Algorithm
    section: LearnerSection
    layout: Layout
    steps: int

    def update(self, batch: Sequence[TrainSequence], first: int) -> Updates:
        """Take an optimizer step for each part that has a signal, in every epoch; `first` numbers the first."""
        parts = [self._part(part) for part in split_updates(batch, self.section.updates_per_batch)]
        order = update_order(len(parts), self.section.passes, first)
        self._find_old_logprobs(parts, order)
        updates = Updates(self.layout.device)
        for number, index in enumerate(order):
            part = parts[index]
            updates.lr = learning_rate(self.section, first + number, self.steps)
            if not part.plan:
                updates.skipped += 1
                continue
            meter = Meter()
            is_refused = partial(self._has_drifted, meter, updates)
            loss = self.model.accumulate(part, self._loss(part, meter), is_refused)
            with self.model.optimizer_on_device():
                norm = self.model.step(updates.lr)
            if not math.isfinite(norm) and is_refused():
                updates.stopped = len(order) - number
                updates.own_meters["refused_kl"] = _policy_kl(self.algorithm.config, meter)
                break
            updates.add(norm, loss, meter, part)
        updates.loss /= max(1, len(updates.norms))
        return updates

    def _part(self, batch: Sequence[TrainSequence]) -> Part:
        """Plan the sequences with a gradient."""
        return self.layout.part(batch, with_gradient(batch, needs_signal=self.algorithm.skips_zero_advantages))

    def _find_old_logprobs(self, parts: Sequence[Part], order: Sequence[int]) -> None:
        """Compute the logprobs before the first update for the parts that are trained after it.

        The first update uses those of its own forward pass, because no weight changes before it. Nothing is computed
        if the ratio is taken against the sampler, or if the batch already has the column.
        """
        config = self.algorithm.config
        if config.old_logprobs == "sampler" or "old" in self.algorithm.requirements.columns:
            return
        is_again = len(order) > len(parts)
        for index in set(order):
            if index != order[0] or is_again:
                parts[index].old = [self.model.output(micro_batch) for micro_batch in parts[index]]

    def _loss(self, part: Part, meter: Meter) -> Callable[[int, MicroBatch], MicroBatchLoss]:
        """Return the function that makes the loss of each micro-batch of a part."""

        def loss(number: int, micro_batch: MicroBatch) -> MicroBatchLoss:
            old = part.old[number] if part.old else None
            return MicroBatchLoss(self.algorithm, micro_batch, part.scale, meter, old)

        return loss

    def _has_drifted(self, meter: Meter, updates: Updates) -> bool:
        """Return whether the KL of an update, over the tokens of all ranks, exceeds `kl_stop`.

        Never before the first step of a batch, which has moved nothing yet: against the sampler, the KL then measures a
        mismatch that would refuse every batch.
        """
        config = self.algorithm.config
        return config.kl_stop > 0 and bool(updates.norms) and _policy_kl(config, meter) > config.kl_stop


def _policy_kl(config: AlgorithmConfig, meter: Meter) -> float:
    metered = means(gathered(meter.sums()))
    check_meters(config, metered)
    return metered["policy_kl"]
