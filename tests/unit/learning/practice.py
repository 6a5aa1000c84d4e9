"""Train a model on a game as a learner rank does, with the learner's own micro-batches, objective, head and critic."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from agentrl.algorithms import Algorithm
from agentrl.algorithms.driver import adapt, assign, has_signal
from agentrl.algorithms.sample import Array, Column, Sample, TrainSequence, attach, samples_of, train_sequences
from agentrl.config.schema import CriticSection
from agentrl.learner.critic import MicroBatchValueLoss
from agentrl.learner.loss import MicroBatchLoss
from agentrl.learner.micro_batch import MicroBatch, by_member
from agentrl.learner.model import PackedModel
from agentrl.learner.part import Layout, Part
from agentrl.losses.terms import Meter, means
from agentrl.types import Group, StepReport
from tests.unit.learning.games import VOCABULARY, Game
from tests.unit.learning.play import expected_reward, new_critic, new_model, sample

GROUPS, MEMBERS, EPOCHS, LR = 8, 8, 2, 5e-3
LAYOUT = Layout(rank=0, ranks=1, budget=4096, device=torch.device("cpu"), compute=torch.float32)
TEACHER_ERROR = 0.05
"""Probability with which the teacher takes an action that is not the best."""


class Learned:
    """A model with its optimizer."""

    def __init__(self, model: PackedModel) -> None:
        self.model = model
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0, fused=True)

    def update(self, part: Part, loss: Callable[[MicroBatch], Callable[..., Tensor]]) -> tuple[float, float]:
        """Take an optimizer step. Returns the loss and the norm of the gradient."""
        total = torch.zeros(())
        for micro_batch in part:
            value = self.model(micro_batch, loss(micro_batch))
            value.backward()
            total += value.detach()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(total), float(norm)


class Practice:
    """A policy that learns a game with an algorithm. Each batch is trained twice, so that the ratio leaves 1.

    The weights of the sampler are `staleness` batches behind, and its logits are multiplied by `sharpness`.
    """

    def __init__(
        self, game: Game, algorithm: Algorithm, seed: int, *, staleness: int = 0, sharpness: float = 1.0
    ) -> None:
        self.game, self.algorithm, self._seed = game, algorithm, seed
        self.policy = Learned(new_model(game.layers, seed))
        self._staleness, self._sharpness = staleness, sharpness
        self._samplers: deque[PackedModel] = deque(maxlen=staleness + 1)
        self._generator = torch.Generator().manual_seed(seed)

    @cached_property
    def critic(self) -> Learned:
        """The value model."""
        return Learned(new_critic(self.game.layers, self._seed))

    @cached_property
    def _reference(self) -> PackedModel:
        return new_model(self.game.layers, self._seed)

    @property
    def expected_reward(self) -> float:
        """The exact expected reward of the policy."""
        return expected_reward(self.policy.model, self.game)

    def train(self, batches: int) -> float:
        """Train on some batches and return the expected reward."""
        for _ in range(batches):
            batch = self.batch()
            self._learn(batch)
            self.learn_values(batch)
        return self.expected_reward

    def batch(self) -> list[TrainSequence]:
        """Sample a batch and give credit."""
        needs, model = self.algorithm.requirements, self.policy.model
        self._samplers.append(copy.deepcopy(model) if self._staleness else model)
        play = partial(sample, self._samplers[0], self.game, self._generator, sharpness=self._sharpness)
        samples = samples_of(self._kept(play(groups=GROUPS, members=MEMBERS, greedy=needs.greedy)))
        attach(samples, {column: self._column(column, samples) for column in needs.columns})
        assign(self.algorithm, samples)
        return train_sequences(samples)

    def _kept(self, groups: Iterable[Group]) -> list[Group]:
        is_filtered = self.algorithm.config.filter_zero_variance
        return [group for group in groups if not is_filtered or has_signal(self.algorithm, group)]

    def _column(self, column: Column, samples: list[list[Sample]]) -> list[Array]:
        if column == "teacher":
            return [self._taught(row) for members in samples for row in members]
        batch, rows = train_sequences(samples), dict[int, Array]()
        for micro_batch in LAYOUT.part(batch, range(len(batch))):
            with torch.no_grad():
                values = self._scorer(column)(micro_batch)
            rows |= {index: row.double().numpy() for index, row in by_member(micro_batch.members, values)}
        return [rows[index] for index in range(len(batch))]

    def _scorer(self, column: Column) -> PackedModel:
        match column:
            case "values":
                return self.critic.model
            case "reference":
                return self._reference
        return self.policy.model

    def _taught(self, row: Sample) -> Array:
        actions = [token for segment in row.trajectory.segments if segment.is_action for token in segment.ids]
        best = [self.game.best(row.trajectory.task_index, turn) for turn in row.turns.tolist()]
        right, wrong = 1 - TEACHER_ERROR, TEACHER_ERROR
        probs = [
            right / len(good) if action in good else wrong / (VOCABULARY - len(good))
            for action, good in zip(actions, best, strict=True)
        ]
        return np.log(probs)

    def _learn(self, batch: list[TrainSequence]) -> None:
        skips = self.algorithm.skips_zero_advantages
        part = LAYOUT.part(batch, [n for n, sequence in enumerate(batch) if sequence.has_signal or not skips])
        if not part.plan:
            return
        with torch.no_grad():
            old = iter([self.policy.model(micro_batch) for micro_batch in part] * EPOCHS)
        meter = Meter()
        for _ in range(EPOCHS):
            loss, norm = self.policy.update(
                part, lambda row: MicroBatchLoss(self.algorithm, row, part.scale, meter, next(old))
            )
        ids = tuple(dict.fromkeys(sequence.sample for sequence in batch))
        adapt(self.algorithm, StepReport(loss, norm, LR, part.actions, EPOCHS, ids, 0.0, meters=means([meter.sums()])))

    def learn_values(self, batch: list[TrainSequence]) -> None:
        """Fit the critic to the returns, if there are any."""
        part, clip = LAYOUT.part(batch, range(len(batch))), CriticSection().clip_value
        for _ in range(EPOCHS if batch and batch[0].columns.returns is not None else 0):
            self.critic.update(part, lambda row: MicroBatchValueLoss(row, clip, part.scale, Meter()))
