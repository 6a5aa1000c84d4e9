"""One rank of the learner on DeepSpeed: ZeRO 0-3, gloo on CPU and NCCL on GPUs."""

from __future__ import annotations

import collections
import math
import os
import pickle
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import torch
from torch import Tensor, nn
from torch import distributed as dist

from agentrl.algorithms import algorithm
from agentrl.config.schema import MICRO_BATCH_TOKENS, AlgorithmSection, LearnerSection
from agentrl.errors import LearnerError, RunError
from agentrl.learner import checkpoint
from agentrl.learner.batch import plan, split_updates, trees
from agentrl.learner.lr_schedule import rate
from agentrl.learner.micro_batch import MicroBatch, dummy_micro_batch, pack
from agentrl.learner.model import PackedModel, checkpoint_tensors, load_model
from agentrl.learner.objective import Objective, TokenSums
from agentrl.types import SampleId, StepReport, TrainSequence, Version
from agentrl.weights.staging import Staged, stage

DTYPES = {"auto": torch.bfloat16, "bfloat16": torch.bfloat16, "float32": torch.float32}
UNREADABLE = (OSError, RuntimeError, ValueError, KeyError, EOFError, AssertionError, pickle.UnpicklingError)


@dataclass(frozen=True)
class LearnerSpec:
    """What a learner rank is made of; picklable. `steps` is the length of the run in batches, for the schedule.

    `device` is cpu or cuda. Weights are staged in shared memory, or under `staging` where that is too small.
    """

    model: Path
    steps: int
    dtype: str = "auto"
    device: str = "cpu"
    learner: LearnerSection = field(default_factory=LearnerSection)
    algorithm: AlgorithmSection = field(default_factory=AlgorithmSection)
    gradient_checkpointing: bool = False
    staging: Path = Path(tempfile.gettempdir())
    bucket_bytes: int = 256 << 20


@dataclass
class _Taken:
    """The optimizer steps of one batch: sums over those that were taken, counts of those that were not."""

    measured: TokenSums
    loss: Tensor
    norms: list[float] = field(default_factory=list)
    lr: float = 0.0
    skipped: int = 0
    nonfinite: int = 0

    def add(self, norm: float, loss: Tensor, measured: TokenSums) -> None:
        self.norms.append(norm)
        self.loss += loss
        self.measured += measured


class DeepSpeedLearner:
    """A `Learner`. Parameters, gradients and optimizer state are float32; matrix products run in the spec's dtype.

    bfloat16 compute is torch's autocast over float32 parameters. Gradients accumulate in float32; at ZeRO stages 1 to 3
    DeepSpeed sends those of linear layers between ranks in bfloat16. It draws no random numbers. A collective that
    another rank does not answer fails after `learner.step_timeout_s`.
    """

    def __init__(self, spec: LearnerSpec, rank: int, world_size: int, master_addr: str, master_port: int) -> None:
        self.spec, self.rank, self.ranks = spec, rank, world_size
        self._compute = DTYPES[spec.dtype]
        self._device = torch.device("cuda", 0) if spec.device == "cuda" else torch.device("cpu")
        self._loss_name = algorithm(spec.algorithm.name).loss
        self._pass_tokens = spec.learner.micro_batch_tokens or MICRO_BATCH_TOKENS[spec.device]
        self._updates = 0
        # DeepSpeed 0.19 calls torch's collectives by their old names, in every layer of every step.
        warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
        if spec.learner.threads:
            torch.set_num_threads(spec.learner.threads)
        with self._named("start"):
            os.environ["LOCAL_RANK"] = "0"  # a rank sees one GPU, or none
            # Else DeepSpeed compiles a C++ all-reduce at the first start: a minute, and there may be no compiler.
            deepspeed.ops.__compatible_ops__ = {}
            deepspeed.init_distributed(
                dist_backend="nccl" if spec.device == "cuda" else "gloo",
                auto_mpi_discovery=False,
                verbose=False,
                timeout=timedelta(seconds=spec.learner.step_timeout_s),
                init_method=f"tcp://{master_addr}:{master_port}",
                rank=rank,
                world_size=world_size,
            )
            self._reference = self._frozen() if spec.algorithm.kl_coef > 0 else None
            self._model = load_model(spec.model, self._compute, gradient_checkpointing=spec.gradient_checkpointing)
            self._engine = self._deepspeed(self._model)

    def _frozen(self) -> PackedModel:
        model = load_model(self.spec.model, self._compute)
        return model.to(self._device).eval().requires_grad_(False)

    def _deepspeed(self, model: PackedModel) -> Any:
        section = self.spec.learner
        if section.zero_stage == 3:
            deepspeed.zero.register_external_parameter(model, model.head_weight)
        optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=section.lr,
            betas=(section.beta1, section.beta2),
            weight_decay=section.weight_decay,
            fused=True,
        )
        zero: dict[str, Any] = {"stage": section.zero_stage}
        if section.offload:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": section.max_grad_norm if section.zero_stage else 0.0,  # at stage 0 see _apply
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "torch_autocast": {
                "enabled": self._compute != torch.float32,
                "dtype": str(self._compute).removeprefix("torch."),
            },
            "steps_per_print": None,
        }
        return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]

    # ----------------------------------------------------------------------------------------------------------
    # Training.

    def step(self, batch: list[TrainSequence]) -> StepReport:
        """See `Learner.step`.

        A sequence whose advantages are all 0 counts among the tokens but needs no forward pass while there is no KL
        term: its loss and gradient are exactly 0. A part without any signal is skipped whole: momentum may not move
        weights on no data.
        """
        started = time.monotonic()
        with self._named("step"):
            taken = self._update(split_updates(batch, self.spec.learner.updates_per_batch))
            dist.all_reduce(taken.loss)
            dist.all_reduce(taken.measured.sums)
        samples, measured = self._share(batch), taken.measured
        return StepReport(
            loss=float(taken.loss),
            grad_norm=sum(taken.norms) / max(1, len(taken.norms)),
            lr=taken.lr,
            entropy=measured.mean("entropy"),
            mismatch_kl=measured.mean("mismatch_kl"),
            reference_kl=measured.mean("reference_kl"),
            clip_fraction=measured.mean("clipped"),
            tis_mean=measured.mean("importance"),
            tis_capped=measured.mean("capped"),
            tokens=sum(sum(sequence.mask) for sequence in batch if sequence.sample in samples),
            optimizer_steps=len(taken.norms),
            samples=tuple(samples),
            seconds=time.monotonic() - started,
            skipped_steps=taken.skipped,
            nonfinite_steps=taken.nonfinite,
            learned_tokens=measured.tokens,
        )

    def _update(self, parts: Sequence[Sequence[TrainSequence]]) -> _Taken:
        """One optimizer step for each part that has a signal; one whose gradient is not finite changes nothing."""
        packed = [self._packs(part, self._teaching(part)) for part in parts]
        olds = self._olds(packed)
        taken = _Taken(TokenSums(self._device), torch.zeros((), device=self._device))
        for place, (part, packs) in enumerate(zip(parts, packed, strict=True)):
            taken.lr = self._set_rate(self._updates + place)
            if not packs:
                taken.skipped += 1
                continue
            measured = TokenSums(self._device)
            loss = self._accumulate(part, packs, olds[place], measured)
            norm = self._apply()
            if math.isfinite(norm):
                taken.add(norm, loss / self.ranks, measured)
            else:
                taken.nonfinite += 1
        self._updates += self.spec.learner.updates_per_batch
        taken.loss /= max(1, len(taken.norms))
        return taken

    def _olds(self, packed: Sequence[Sequence[MicroBatch]]) -> list[list[Tensor]]:
        """The logprobs of each part's passes before the first optimizer step; none where the pass's own are the same.

        The first part's are: no weights change before it. Where the ratio is taken against the sampler nothing reads
        them.
        """
        if self.spec.algorithm.old_logprobs == "sampler":
            return [[] for _ in packed]
        return [[], *([self._forward(self._engine, row) for row in packs] for packs in packed[1:])]

    def _share(self, batch: Sequence[TrainSequence]) -> dict[SampleId, None]:
        """The samples that this rank answers for, whichever rank their tokens went through."""
        samples = list({sequence.sample: None for sequence in batch})
        return dict.fromkeys(samples[self.rank :: self.ranks])

    def _teaching(self, part: Sequence[TrainSequence]) -> list[int]:
        """The places of the sequences that have a gradient; with a reference, all of them."""
        has_reference = self._reference is not None
        return [place for place, sequence in enumerate(part) if has_reference or sequence.has_signal]

    def _packs(self, part: Sequence[TrainSequence], places: Sequence[int]) -> list[MicroBatch]:
        """This rank's forward passes, as many as every other rank's; none when no sequence is named."""
        if not places:
            return []
        grown = trees(part, places)
        passes = plan(grown, self.ranks, self._pass_tokens)[self.rank]
        packs = [pack(part, some) if some else dummy_micro_batch(part, grown) for some in passes]
        return [row.to(self._device, self._compute) for row in packs]

    def _set_rate(self, update: int) -> float:
        section = self.spec.learner
        lr = rate(section, update, self.spec.steps * section.updates_per_batch)
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _accumulate(
        self, part: Sequence[TrainSequence], packs: Sequence[MicroBatch], olds: Sequence[Tensor], measured: TokenSums
    ) -> Tensor:
        """Gradients of one optimizer step; returns this rank's loss, times the number of ranks."""
        scale = self.ranks / sum(sum(sequence.mask) for sequence in part)
        total = torch.zeros((), device=self._device)
        self._engine.train()
        for place, row in enumerate(packs):
            is_last = place == len(packs) - 1
            self._engine.set_gradient_accumulation_boundary(is_last)
            objective = Objective(
                self.spec.algorithm,
                self._loss_name,
                row,
                scale,
                measured,
                olds[place] if olds else None,
                self._forward(self._reference, row) if self._reference is not None else None,
            )
            loss = self._engine(row, objective)
            self._engine.backward(loss, scale_wrt_gas=False)
            total += loss.detach()
            if not is_last:
                self._engine.step()
        return total

    def _apply(self) -> float:
        """Clip and take the optimizer step; returns the norm before clipping. No step is taken where it is not finite.

        ZeRO looks at the norm itself; at stage 0 DeepSpeed would step all the same.
        """
        if self.spec.learner.zero_stage == 0:
            norm = float(nn.utils.clip_grad_norm_(self._model.parameters(), self.spec.learner.max_grad_norm))
            if not math.isfinite(norm):
                self._model.zero_grad(set_to_none=True)
            self._engine.step()
            return norm
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    @staticmethod
    def _forward(model: Any, row: MicroBatch) -> Tensor:
        with torch.no_grad():
            logprobs: Tensor = model(row)
            return logprobs

    # ----------------------------------------------------------------------------------------------------------
    # What others ask of it.

    def logprobs(self, ids: list[list[int]], temperature: float = 1.0) -> list[list[float]]:
        """See `Learner.logprobs`; every rank computes all of it."""
        batch = [
            TrainSequence(
                SampleId(n, 0), row, [0] + [1] * (len(row) - 1), [0.0] * len(row), [0.0] * len(row), temperature
            )
            for n, row in enumerate(ids)
        ]
        out: list[list[float]] = [[] for _ in ids]
        with self._named("logprobs"):
            for some in plan(trees(batch, range(len(batch))), 1, self._pass_tokens)[0]:
                row = pack(batch, some)
                values = iter(self._forward(self._engine, row.to(self._device, self._compute)).tolist())
                for place, actions in row.members:
                    out[place] = [next(values) for _ in range(actions)]
        return out

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor in the compute type, under its checkpoint name; all ranks must iterate together."""
        model = self._model.model
        state = {name: self._whole(tensor) for name, tensor in model.state_dict(keep_vars=True).items()}
        return checkpoint_tensors(model, state)

    def _whole(self, tensor: Tensor) -> Tensor:
        if self.spec.learner.zero_stage == 3 and isinstance(tensor, nn.Parameter):
            with deepspeed.zero.GatheredParameters([tensor]):
                return self._cast(tensor).clone()
        return self._cast(tensor)

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to(self._compute) if tensor.is_floating_point() else tensor.detach()

    def stage(self, version: Version) -> Staged | None:
        """See `Learner.stage`."""
        with self._named("stage"):
            named = self.weights()
            if self.rank == 0:
                return stage(named, version, self.spec.staging, self.spec.bucket_bytes)
            collections.deque(named, maxlen=0)
            return None

    def save(self, folder: Path) -> None:
        """See `Learner.save`."""
        written = checkpoint.partial(folder)
        with self._named("save"):
            named = list(self.weights())
            _refuse_nonfinite(named)
            if self.rank == 0:
                shutil.rmtree(written, ignore_errors=True)
                written.mkdir(parents=True)
            dist.barrier()
            self._engine.save_checkpoint(str(written / checkpoint.STATE), tag=checkpoint.TAG)
            if self.rank == 0:
                checkpoint.write_model(self.spec.model, named, self._compute, written)
                progress = checkpoint.Progress(self._updates, self.ranks, self.spec.learner.zero_stage)
                checkpoint.write_progress(written, progress)
                checkpoint.commit(folder)
            dist.barrier()

    def load(self, folder: Path) -> None:
        """See `Learner.load`; raises RunError for a checkpoint that cannot be read."""
        progress = checkpoint.read_progress(folder, self.ranks, self.spec.learner.zero_stage)
        try:
            found, _ = self._engine.load_checkpoint(str(folder / checkpoint.STATE), tag=checkpoint.TAG)
        except UNREADABLE as error:
            raise RunError(
                f"checkpoint {folder} cannot be read: {error}. Delete it to go on from the one before."
            ) from error
        if found is None:
            raise RunError(f"checkpoint {folder} holds no training state. Delete it to go on from the one before.")
        self._updates = progress.updates

    def close(self) -> None:
        """Leave the process group. Idempotent."""
        if dist.is_initialized():
            dist.destroy_process_group()

    @contextmanager
    def _named(self, work: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise LearnerError(f"learner rank {self.rank} failed in {work}: {error}") from error


def _refuse_nonfinite(named: Iterable[tuple[str, Tensor]]) -> None:
    bad = [name for name, tensor in named if tensor.is_floating_point() and not bool(tensor.isfinite().all())]
    if bad:
        raise LearnerError(f"{len(bad)} tensors of the model are not finite, {bad[0]} first: no checkpoint is written")
