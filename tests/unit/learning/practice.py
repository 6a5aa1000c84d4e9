"""Train a model on a game as a learner rank does, with the learner's own packing, objective and head."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor, nn

from agentrl.algorithms import Algorithm
from agentrl.algorithms.sample import Array, Column, Sample, TrainSequence, attach, samples_of, train_sequences
from agentrl.learner.batch import build_trees
from agentrl.learner.loss import MicroBatchLoss
from agentrl.learner.micro_batch import MicroBatch, pack
from agentrl.learner.model import PackedModel
from agentrl.losses.terms import Meter, means
from agentrl.types import StepReport
from tests.unit.learning.games import VOCABULARY, Game
from tests.unit.learning.play import expected_reward, new_model, sample

GROUPS, MEMBERS, EPOCHS, LR = 8, 8, 2, 5e-3
TEACHER_ERROR = 0.05
"""Probability with which the teacher takes an action that is not the best."""


class Practice:
    """A policy that learns a game with an algorithm. Each batch is trained twice, so that the ratio leaves 1.

    The weights of the sampler are `staleness` batches behind, and its logits are multiplied by `sharpness`.
    """

    def __init__(
        self, game: Game, algorithm: Algorithm, seed: int, *, staleness: int = 0, sharpness: float = 1.0
    ) -> None:
        self.game, self.algorithm = game, algorithm
        self.policy = new_model(game.layers, seed)
        self._staleness, self._sharpness = staleness, sharpness
        self._samplers: deque[PackedModel] = deque(maxlen=staleness + 1)
        self._optimizer = torch.optim.AdamW(self.policy.parameters(), lr=LR, weight_decay=0.0, fused=True)
        self._start = partial(new_model, game.layers, seed)
        self._generator = torch.Generator().manual_seed(seed)

    @cached_property
    def _reference(self) -> PackedModel:
        return self._start()

    @cached_property
    def _critic(self) -> Critic:
        return Critic(self._start())

    @property
    def expected_reward(self) -> float:
        """The exact expected reward of the policy."""
        return expected_reward(self.policy, self.game)

    def train(self, batches: int) -> float:
        """Train on some batches and return the expected reward."""
        for _ in range(batches):
            self.step()
        return self.expected_reward

    def step(self) -> None:
        """Sample a batch, give credit and take the optimizer steps."""
        needs = self.algorithm.requirements
        self._samplers.append(copy.deepcopy(self.policy) if self._staleness else self.policy)
        play = partial(sample, self._samplers[0], self.game, self._generator, sharpness=self._sharpness)
        groups = play(groups=GROUPS, members=MEMBERS, greedy=needs.greedy)
        if self.algorithm.config.filter_zero_variance:
            groups = [group for group in groups if self.algorithm.has_signal(group)]
        samples = samples_of(groups)
        if needs.columns:
            batch = train_sequences(samples)
            attach(samples, {column: self._column(column, samples, batch) for column in needs.columns})
        self.algorithm.assign(samples)
        self._learn(train_sequences(samples))

    def _column(self, column: Column, samples: list[list[Sample]], batch: list[TrainSequence]) -> list[Array]:
        if column == "teacher":
            return [self._taught(row) for members in samples for row in members]
        packed = _packed(batch)
        with torch.no_grad():
            if column == "values":
                values = self._critic(packed)
            else:
                values = (self._reference if column == "reference" else self.policy)(packed)
        return [row.double().numpy() for _, row in sorted(packed.by_member(values))]

    def _taught(self, row: Sample) -> Array:
        actions = [token for segment in row.trajectory.segments if segment.is_action for token in segment.ids]
        best = [self.game.best(row.trajectory.task_index, turn) for turn in row.turns.tolist()]
        return np.log(
            [
                (1 - TEACHER_ERROR) / len(good) if action in good else TEACHER_ERROR / (VOCABULARY - len(good))
                for action, good in zip(actions, best, strict=True)
            ]
        )

    def _learn(self, batch: list[TrainSequence]) -> None:
        skips = self.algorithm.skips_zero_advantages
        chosen = [index for index, row in enumerate(batch) if row.has_signal or not skips]
        if not chosen:
            return
        packed, total = pack(batch, build_trees(batch, chosen)), sum(row.share for row in batch)
        with torch.no_grad():
            old: Tensor = self.policy(packed)
        meter, losses = Meter(), []
        for _ in range(EPOCHS):
            loss = self.policy(packed, MicroBatchLoss(self.algorithm, packed, 1 / total, meter, old))
            loss.backward()
            norm = nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad()
            losses.append(loss.item())
        if "returns" in packed.columns:
            self._critic.learn(packed)
        self.algorithm.after(StepReport(sum(losses), float(norm), LR, 0, EPOCHS, (), 0.0, meters=means([meter.sums()])))


class Critic(nn.Module):
    """A model with a scalar head: the value of the state before each action."""

    def __init__(self, body: PackedModel) -> None:
        super().__init__()
        self._body = body.model.base_model
        self._head = nn.Linear(self._body.config.hidden_size, 1)
        nn.init.zeros_(self._head.weight)
        nn.init.zeros_(self._head.bias)
        self._optimizer = torch.optim.AdamW(self.parameters(), lr=LR, weight_decay=0.0, fused=True)

    def forward(self, packed: MicroBatch) -> Tensor:
        """Values [A]."""
        hidden = self._body(
            input_ids=packed.ids_N[None],
            position_ids=packed.positions_N[None],
            use_cache=False,
            blocks=packed.blocks,
        ).last_hidden_state[0]
        values: Tensor = self._head(hidden[packed.source_A])[:, 0]
        return values

    def learn(self, packed: MicroBatch) -> None:
        """Fit the returns."""
        for _ in range(EPOCHS):
            loss = nn.functional.mse_loss(self(packed), packed.columns["returns"])
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            self._optimizer.step()
            self._optimizer.zero_grad()


def _packed(batch: Sequence[TrainSequence]) -> MicroBatch:
    return pack(batch, build_trees(batch, range(len(batch))))
