"""The critic of a learner rank: values of states, and updates of the model that estimates them."""
# ruff: noqa: N803, N806

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from agentrl.algorithms.sample import TrainSequence
from agentrl.learner.batch import split_updates, with_gradient
from agentrl.learner.deepspeed import DeepSpeedModel
from agentrl.learner.lr_schedule import learning_rate
from agentrl.learner.micro_batch import MicroBatch
from agentrl.learner.part import Layout, Part
from agentrl.learner.sharding import Sharding
from agentrl.learner.spec import LearnerSpec
from agentrl.learner.updates import Updates, update_order
from agentrl.learner.value_model import load_value_model
from agentrl.losses.terms import Meter
from agentrl.losses.value_loss import value_loss


@dataclass(frozen=True)
class MicroBatchValueLoss:
    """The value loss summed over the actions of a micro-batch, times `scale`. A dummy has a loss of 0."""

    micro_batch: MicroBatch
    clip: float
    scale: float
    meter: Meter

    def __call__(self, values_A: Tensor) -> Tensor:
        """Return the summed loss, differentiable in the values."""
        columns = self.micro_batch.columns
        loss_A, is_clipped_A = value_loss(values_A, columns["returns"], columns["values"], self.clip)
        weights_A = columns["weights"] * (not self.micro_batch.is_dummy)
        counted_A = (weights_A != 0).to(loss_A.dtype)
        self.meter("value_loss", loss_A, counted_A)
        self.meter("value_clip_fraction", is_clipped_A, counted_A)
        return (weights_A * loss_A).sum() * self.scale


class Critic:
    """A value model with its own optimizer, on the policy's ranks or on its own; all of them call each method together.

    On the policy's ranks the optimizer's state is in CPU memory between updates, with `scorers.offload`.
    """

    def __init__(self, spec: LearnerSpec, layout: Layout) -> None:
        self._clip, self._steps, self._layout = spec.critic.clip_value, spec.steps, layout
        self._section = spec.critic.optimizer(spec.learner)
        folder = spec.critic_model or spec.model
        model = load_value_model(
            folder,
            spec.compute,
            gradient_checkpointing=spec.gradient_checkpointing,
            sharding=Sharding.of(self._section, spec.compute),
            sharers=spec.learner.tensor_parallel,
        )
        shares_memory = spec.critic.placement != "separate"
        waits_in_cpu_memory = spec.scorers.offload and shares_memory and not self._section.offload
        self._model = DeepSpeedModel(model, self._section, offload=waits_in_cpu_memory)

    def values(self, micro_batch: MicroBatch) -> Tensor:
        """Return the value [A] of the state before each action, without gradient."""
        return self._model.output(micro_batch)

    def update(self, batch: Sequence[TrainSequence], first: int) -> Updates:
        """Take as many optimizer steps as the policy does, on all sequences; `first` is the number of the first.

        The old values are those of the batch. A step whose gradient is not finite changes nothing.
        """
        parts = [self._part(rows) for rows in split_updates(batch, self._section.updates_per_batch)]
        updates = Updates(self._layout.device)
        with self._model.optimizer_on_device():
            for number, index in enumerate(update_order(len(parts), self._section.passes, first)):
                updates.lr = learning_rate(self._section, first + number, self._steps)
                if parts[index].plan:
                    self._step(parts[index], updates)
        updates.digest = self._model.digest()
        own = {"critic_grad_norm": updates.grad_norm, "critic_lr": updates.lr}
        updates.own_meters = {**value_meters(batch), **own}
        return updates

    def _part(self, batch: Sequence[TrainSequence]) -> Part:
        return self._layout.part(batch, with_gradient(batch, needs_signal=False))

    def _step(self, part: Part, updates: Updates) -> None:
        meter = Meter()
        loss = self._model.accumulate(part, lambda _, row: MicroBatchValueLoss(row, self._clip, part.scale, meter))
        updates.add(self._model.step(updates.lr), loss, meter, part)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Return every tensor under its checkpoint name, in the compute type."""
        return self._model.weights()

    def nonfinite(self) -> list[str]:
        """Return the parameters with a value that is not finite on any rank."""
        return self._model.nonfinite()

    def save(self, folder: Path) -> None:
        """Write the exact training state; every rank writes its part."""
        self._model.save(folder)

    def load(self, folder: Path) -> None:
        """Restore the training state that the ranks of any layout saved."""
        self._model.load(folder)


def value_meters(batch: Sequence[TrainSequence]) -> dict[str, float]:
    """Return the mean of a batch's values before its first update, and the share of the returns' variance they explain.

    The share is 1 - var(returns - values) / var(returns) over tokens with a weight; 0 if the returns are all equal.
    """
    values, returns, weights = (
        np.concatenate([getattr(sequence.columns, name) for sequence in batch]).astype(np.float64)
        for name in ("values", "returns", "weights")
    )
    values, returns = values[weights != 0], returns[weights != 0]
    variance = float(returns.var()) if len(returns) else 0.0
    explained = 1 - float((returns - values).var()) / variance if variance else 0.0
    return {"value_mean": float(values.mean()) if len(values) else 0.0, "value_explained_variance": explained}
