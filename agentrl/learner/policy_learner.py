"""One rank of the policy's learner: a batch becomes optimizer steps, and weights become publications or checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from agentrl.algorithms.sample import Array, Column, TrainSequence, plain_sequence
from agentrl.errors import LearnerError
from agentrl.learner import reference
from agentrl.learner.critic import Critic
from agentrl.learner.deepspeed import gathering
from agentrl.learner.loss import rehearse_loss
from agentrl.learner.model import PackedModel
from agentrl.learner.part import Layout
from agentrl.learner.policy import Policy, load_policy
from agentrl.learner.rank import LearnerRank
from agentrl.learner.scorers import Compute, Scorers, score
from agentrl.learner.sharding import Sharding
from agentrl.learner.spec import LearnerSpec
from agentrl.learner.training_state import TrainingState
from agentrl.learner.updates import Updates, gathered
from agentrl.losses.terms import means
from agentrl.types import SampleId, StepReport
from agentrl.weights.staging import StagedBucket, stage, stage_adapter, tensor_groups


class PolicyLearner(LearnerRank):
    """One rank of the policy's learner, and of a critic that shares its ranks."""

    def __init__(self, spec: LearnerSpec, rank: int, world_size: int, master_addr: str, master_port: int) -> None:
        super().__init__(spec, rank, world_size, master_addr, master_port)
        self._staged: list[StagedBucket] = []
        self._buckets: Iterator[StagedBucket | None] = iter(())
        with self._activity("start"):
            rehearse_loss(self._algorithm, self._device)
            self._model = load_policy(spec)
            moves = self._algorithm.config.reference_every > 0
            sharding = Sharding.of(spec.learner, spec.compute)
            self._scorers = Scorers(
                spec, self._frozen_columns(), offload=spec.scorers.offload, moves=moves, sharding=sharding
            )
            self._gathering = [gathering(model, sharding) for model in self._scorers.sharded if sharding]
            if spec.lora.load_in_4bit and self._moving_reference is not None:
                reference.move(self._moving_reference, self._model.parameters(), ema=0.0)  # quantized as the policy is
            is_separate = spec.critic.placement == "separate"
            self._critic = Critic(spec, self._layout) if self._has_critic and not is_separate else None
            steps = spec.steps - (spec.critic.warmup_steps if self._has_critic else 0)
            self._policy = Policy(self._model, self._algorithm, spec.learner, self._layout, steps)

    def _frozen_columns(self) -> frozenset[Column]:
        """Return the columns for which this rank holds a frozen model."""
        if self.spec.scorers.placement == "separate":
            return frozenset()
        return self._algorithm.frozen_columns(has_adapters=bool(self.spec.lora.rank))

    # --- columns --------------------------------------------------------------------------------------------

    def score(self, batch: list[TrainSequence], columns: Sequence[Column]) -> dict[Column, dict[int, Array]]:
        """Compute columns for this rank's share of the batch: {column: {index in the batch: values [A]}}."""
        with self._activity("score"), self._scorers.on_device():
            return super().score(batch, columns)

    def _compute_of(self, column: Column) -> Compute:
        if column in self._scorers.models:
            return self._scorers.compute_of(column)
        if column == "reference" and self.spec.lora.rank:
            return self._model.base_output
        if column == "values" and self._critic is not None:
            return self._critic.values
        if column == "old":
            return self._model.output
        raise LearnerError(f"no model of this learner computes the column {column!r}")

    # --- steps ----------------------------------------------------------------------------------------------

    def step(self, batch: list[TrainSequence], state: Mapping[str, float] | None = None) -> StepReport:
        """Train on one global batch: `learner.epochs` times `learner.updates_per_batch` optimizer steps.

        `state` is that of the algorithm. A sequence whose advantages are all 0 counts among the tokens but needs no
        forward pass unless there is a KL or entropy term: its loss and gradient are exactly 0. An update without any
        signal is skipped, because momentum must not move weights without data. An update before which the KL exceeds
        `kl_stop` is not taken, nor are those after it; its KL is metered as `refused_kl`. The first update is always
        taken. A critic takes as many steps afterwards; in the first
        `critic.warmup_steps` batches it learns alone.
        """
        started = time.monotonic()
        self._algorithm.state = dict(state or {})
        with self._activity("step"):
            first = self._updates - self._warmup
            updates = self._policy.update(batch, first) if first >= 0 else Updates(self._device)
            values = self._critic.update(batch, self._updates) if self._critic else Updates(self._device)
            self._updates += self.spec.learner.updates
            updates.meter.add(values.meter)
            tokens = torch.tensor(updates.tokens, device=self._device)
            dist.all_reduce(updates.loss)  # both hold what a group shares once for each of its ranks
            dist.all_reduce(tokens)
            meters = gathered(updates.meter.sums())
            self._move_reference()
        # Each rank reports a share of the samples, whichever rank their tokens went through.
        samples = list(dict.fromkeys(sequence.sample for sequence in batch))[self.rank :: self.world_size]
        own = set(samples)
        return StepReport(
            loss=float(updates.loss) / self.spec.learner.sharers,
            grad_norm=updates.grad_norm,
            lr=updates.lr,
            meters={**means(meters), **updates.own_meters, **values.own_meters},
            digest=self._model.digest() + values.digest,
            tokens=sum(sequence.actions for sequence in batch if sequence.sample in own),
            optimizer_steps=len(updates.norms),
            samples=tuple(samples),
            seconds=time.monotonic() - started,
            skipped_steps=updates.skipped,
            nonfinite_steps=updates.nonfinite + values.nonfinite,
            stopped_steps=updates.stopped,
            learned_tokens=int(tokens) // self.spec.learner.sharers,
            layout=self.spec.critic.layout(self.spec.learner),
            gpu=torch.cuda.get_device_name(self._device) if self.spec.device == "cuda" else "",
            deterministic=self.spec.learner.deterministic,
        )

    @property
    def _warmup(self) -> int:
        """Updates of the critic's warm-up."""
        return self.spec.critic.warmup_steps * self.spec.learner.updates if self._has_critic else 0

    def _move_reference(self) -> None:
        """Move the reference to the policy, every `reference_every` steps."""
        config, steps = self._algorithm.config, self._updates // self.spec.learner.updates
        if self._moving_reference is not None and steps % config.reference_every == 0:
            reference.move(self._moving_reference, self._model.parameters(), config.reference_ema)

    @property
    def _moving_reference(self) -> PackedModel | None:
        """The reference if it is part of the training state."""
        return self._scorers.models.get("reference") if self._algorithm.config.reference_every else None

    def logprobs(self, ids: list[list[int]]) -> list[list[float]]:
        """Logprobs of ids[1:] for each sequence, in the compute type of training; every rank computes all of them."""
        batch = [plain_sequence(SampleId(number, 0), row) for number, row in enumerate(ids)]
        with self._activity("logprobs"):
            rows = score(Layout.of(self.spec, 0, 1).part(batch, range(len(batch))), {"old": self._model.output})["old"]
        return [rows[number].tolist() for number in range(len(ids))]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor under its checkpoint name, in the compute type; all ranks iterate together."""
        return self._model.weights()

    def shapes(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what `weights` yields without data; nothing is gathered."""
        return self._model.shapes()

    def begin_staging(self) -> None:
        """Let `stage_next` begin with the first bucket of the present weights, or adapters."""
        for bucket in self._staged:
            bucket.discard()  # of a publication that was given up
        self._staged, self._buckets = [], self._to_stage()

    def stage_next(self) -> StagedBucket | None:
        """Write the next bucket to shared memory, on rank 0; the others return None, as rank 0 does after the last."""
        with self._activity("stage"):
            bucket = next(self._buckets, None)
        if bucket is not None:
            self._staged.append(bucket)
        return bucket

    def _to_stage(self) -> Iterator[StagedBucket | None]:
        """Gather the tensors of each bucket, on all ranks; only rank 0 keeps them."""
        if self.spec.lora.publish == "adapter":
            named = self._model.adapter()
            write = partial(self._model.write_adapter, named, self.spec.model)
            return iter([stage_adapter(named, self.spec.staging, write) if self.rank == 0 else None])
        if self.rank == 0:
            return stage(self.weights(), self.spec.staging, self.spec.bucket_bytes)
        sizes = ((name, torch.empty_like(tensor, device="meta")) for name, tensor in self.weights())
        return (None for _ in tensor_groups(sizes, self.spec.bucket_bytes))

    def save(self, folder: Path, state: Mapping[str, float] | None = None) -> None:
        """Write a checkpoint with the algorithm's `state`.

        Raises LearnerError, and writes nothing, if a weight is not finite.
        """
        with self._activity("save"):
            self._training_state.save(folder, self._updates, dict(state or {}))

    def load(self, folder: Path) -> dict[str, float]:
        """Restore the exact training state, and return that of the algorithm. Any layout may have saved it.

        Raises RunError if the checkpoint cannot be read.
        """
        progress = self._training_state.load(folder)
        self._updates = progress.updates
        return progress.state

    @property
    def _training_state(self) -> TrainingState:
        is_begun = self._has_critic and self._critic is None
        return TrainingState(self.spec, self._model, self._critic, self._moving_reference, is_begun)
