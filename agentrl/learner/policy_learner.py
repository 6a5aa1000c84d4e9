"""One rank of the policy's learner: a batch becomes optimizer steps, and weights become publications or checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

from agentrl.algorithms import algorithm
from agentrl.errors import LearnerError
from agentrl.learner import checkpoint
from agentrl.learner.batch import build_trees, plan_micro_batches, split_updates
from agentrl.learner.deepspeed import DeepSpeedModel, join_process_group
from agentrl.learner.lr_schedule import learning_rate
from agentrl.learner.micro_batch import MicroBatch, dummy_micro_batch, pack
from agentrl.learner.model import PackedModel, load_model
from agentrl.learner.objective import Objective, TokenSums
from agentrl.learner.spec import LearnerSpec
from agentrl.types import SampleId, StepReport, TrainSequence, Version
from agentrl.weights.staging import Staged, stage


@dataclass
class _Updates:
    """The optimizer steps of one batch: sums over those that were taken, counts of the others."""

    sums: TokenSums
    loss: Tensor
    norms: list[float] = field(default_factory=list)
    lr: float = 0.0
    skipped: int = 0
    nonfinite: int = 0

    def add(self, norm: float, loss: Tensor, sums: TokenSums) -> None:
        if math.isfinite(norm):
            self.norms.append(norm)
            self.loss += loss
            self.sums += sums
        else:
            self.nonfinite += 1


class PolicyLearner:
    """One rank of the learner; all ranks are called together, with the same arguments.

    It has a frozen reference model if `algorithm.kl_coef` is positive.
    """

    def __init__(self, spec: LearnerSpec, rank: int, world_size: int, master_addr: str, master_port: int) -> None:
        self.spec, self.rank, self.world_size = spec, rank, world_size
        self._device = torch.device("cuda", 0) if spec.device == "cuda" else torch.device("cpu")
        self._loss = algorithm(spec.algorithm.name).loss
        self._updates = 0
        if spec.learner.threads:
            torch.set_num_threads(spec.learner.threads)
        with self._named("start"):
            join_process_group(spec, rank, world_size, master_addr, master_port)
            self._reference = self._frozen() if spec.algorithm.kl_coef > 0 else None
            self._model = DeepSpeedModel(spec)

    def _frozen(self) -> PackedModel:
        model = load_model(self.spec.model, self.spec.compute)
        return model.to(self._device).eval().requires_grad_(False)

    def step(self, batch: list[TrainSequence]) -> StepReport:
        """Train on one global batch, in `learner.updates_per_batch` optimizer steps.

        A sequence whose advantages are all 0 counts among the tokens but needs no forward pass unless there is a KL
        term: its loss and gradient are exactly 0. An update without any signal is skipped, because momentum must not
        move weights without data.
        """
        started = time.monotonic()
        with self._named("step"):
            updates = self._update(split_updates(batch, self.spec.learner.updates_per_batch))
            dist.all_reduce(updates.loss)
            dist.all_reduce(updates.sums.sums)
        # Each rank reports a share of the samples, whichever rank their tokens went through.
        samples = list(dict.fromkeys(sequence.sample for sequence in batch))[self.rank :: self.world_size]
        own = set(samples)
        return StepReport(
            loss=float(updates.loss),
            grad_norm=sum(updates.norms) / max(1, len(updates.norms)),
            lr=updates.lr,
            tokens=sum(sum(sequence.mask) for sequence in batch if sequence.sample in own),
            optimizer_steps=len(updates.norms),
            samples=tuple(samples),
            seconds=time.monotonic() - started,
            skipped_steps=updates.skipped,
            nonfinite_steps=updates.nonfinite,
            learned_tokens=updates.sums.tokens,
            **updates.sums.means(),
        )

    def _update(self, parts: Sequence[Sequence[TrainSequence]]) -> _Updates:
        """Take one optimizer step for each part that has a signal."""
        micro_batches = [self._micro_batches(part) for part in parts]
        old_logprobs = self._old_logprobs(micro_batches)
        updates = _Updates(TokenSums(self._device), torch.zeros((), device=self._device))
        section = self.spec.learner
        for index, part in enumerate(parts):
            updates.lr = learning_rate(section, self._updates + index, self.spec.steps * section.updates_per_batch)
            if not micro_batches[index]:
                updates.skipped += 1
                continue
            sums, tokens = TokenSums(self._device), sum(sum(sequence.mask) for sequence in part)
            loss = self._backward(micro_batches[index], old_logprobs[index], self.world_size / tokens, sums)
            updates.add(self._model.step(updates.lr), loss / self.world_size, sums)
        self._updates += section.updates_per_batch
        updates.loss /= max(1, len(updates.norms))
        return updates

    def _old_logprobs(self, micro_batches: Sequence[Sequence[MicroBatch]]) -> list[list[Tensor]]:
        """Logprobs of the micro-batches of each update under the weights before the first; [] if they are not needed.

        The first update uses those of its own forward pass, because no weight changes before it. Where the ratio is
        taken against the sampler, no update needs them.
        """
        if self.spec.algorithm.old_logprobs == "sampler":
            return [[] for _ in micro_batches]
        return [[], *([self._model.logprobs(one) for one in update] for update in micro_batches[1:])]

    def _micro_batches(self, part: Sequence[TrainSequence]) -> list[MicroBatch]:
        """Return this rank's micro-batches of the sequences with a gradient; every rank has the same number of them."""
        has_reference = self._reference is not None
        indices = [index for index, sequence in enumerate(part) if has_reference or sequence.has_signal]
        if not indices:
            return []
        trees = build_trees(part, indices)
        plan = plan_micro_batches(trees, self.world_size, self.spec.micro_batch_tokens)[self.rank]
        packed = [pack(part, content) if content else dummy_micro_batch(part, trees) for content in plan]
        return [micro_batch.to(self._device, self.spec.compute) for micro_batch in packed]

    def _backward(
        self, micro_batches: Sequence[MicroBatch], old_logprobs: Sequence[Tensor], scale: float, sums: TokenSums
    ) -> Tensor:
        """Accumulate the gradient of one update. Returns this rank's loss, times the number of ranks."""
        total = torch.zeros((), device=self._device)
        for index, micro_batch in enumerate(micro_batches):
            old = old_logprobs[index] if old_logprobs else None
            reference = self._reference(micro_batch) if self._reference is not None else None
            objective = Objective(self.spec.algorithm, self._loss, micro_batch, scale, sums, old, reference)
            total += self._model.backward(micro_batch, objective, is_last=index == len(micro_batches) - 1)
        return total

    def logprobs(self, ids: list[list[int]]) -> list[list[float]]:
        """Logprobs of ids[1:] for each sequence, in the compute type of training; every rank computes all of them."""
        batch = [
            TrainSequence(SampleId(n, 0), row, [0] + [1] * (len(row) - 1), [0.0] * len(row), [0.0] * len(row))
            for n, row in enumerate(ids)
        ]
        out: list[list[float]] = [[] for _ in ids]
        with self._named("logprobs"):
            trees = build_trees(batch, range(len(batch)))
            for content in plan_micro_batches(trees, 1, self.spec.micro_batch_tokens)[0]:
                micro_batch = pack(batch, content).to(self._device, self.spec.compute)
                values = iter(self._model.logprobs(micro_batch).tolist())
                for index, actions in micro_batch.members:
                    out[index] = [next(values) for _ in range(actions)]
        return out

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Return every tensor under its checkpoint name, in the compute type."""
        return self._model.weights()

    def stage(self, version: Version) -> Staged | None:
        """Write the current weights to shared memory, on rank 0; the other ranks return None."""
        with self._named("stage"):
            named = self.weights()
            return stage(named, version, self.spec.staging, self.spec.bucket_bytes) if self.rank == 0 else None

    def save(self, folder: Path) -> None:
        """Write model, optimizer and schedule as one checkpoint, renamed when all ranks have written their part.

        Raises LearnerError, and writes nothing, if a weight is not finite.
        """
        with self._named("save"):
            named = list(self.weights())
            _refuse_nonfinite(named)
            partial = checkpoint.partial(folder)
            if self.rank == 0:
                checkpoint.make_empty(partial)
            dist.barrier()
            self._model.save(partial / checkpoint.STATE)
            if self.rank == 0:
                checkpoint.write_model(self.spec.model, named, self.spec.compute, partial)
                progress = checkpoint.Progress(self._updates, self.world_size, self.spec.learner.zero_stage)
                checkpoint.commit(folder, progress)
            dist.barrier()

    def load(self, folder: Path) -> None:
        """Restore the exact training state. Raises RunError if the checkpoint cannot be read, or has other ranks."""
        progress = checkpoint.read_progress(folder, self.world_size, self.spec.learner.zero_stage)
        self._model.load(folder / checkpoint.STATE)
        self._updates = progress.updates

    def close(self) -> None:
        """Leave the process group. Idempotent."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def _named(self, activity: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise LearnerError(f"learner rank {self.rank} failed in {activity}: {error}") from error


def _refuse_nonfinite(named: Iterable[tuple[str, Tensor]]) -> None:
    bad = [name for name, tensor in named if tensor.is_floating_point() and not bool(tensor.isfinite().all())]
    if bad:
        raise LearnerError(
            f"{len(bad)} tensors of the model are not finite, such as {bad[0]}: no checkpoint is written"
        )
