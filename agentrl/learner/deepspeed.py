"""A model and its optimizer, sharded over ranks by DeepSpeed: ZeRO 0-3, gloo on CPU and NCCL on GPUs."""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import deepspeed
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch import distributed as dist

from agentrl.config.schema import LearnerSection
from agentrl.learner.average import Average
from agentrl.learner.checkpoint import unreadable
from agentrl.learner.lora import Full, adapter_state, adapters_off, merged_state, write_adapter
from agentrl.learner.micro_batch import MicroBatch
from agentrl.learner.model import PackedModel, checkpoint_tensors, set_modes
from agentrl.learner.offload import OptimizerMemory
from agentrl.learner.optimizers import make_optimizer
from agentrl.learner.part import Part
from agentrl.learner.sharding import Sharding, settings
from agentrl.learner.shards import AVERAGE, StateFiles, named_state, write
from agentrl.learner.spec import LearnerSpec
from agentrl.learner.tensor_parallel import cut_of, grad_norm
from agentrl.learner.updates import gathered
from agentrl.learner.zero import optimizer_state, shards, spread
from agentrl.weights.digest import tensor_digest
from agentrl.weights.staging import NamedTensor


def join_process_group(spec: LearnerSpec, rank: int, world_size: int, master_addr: str, master_port: int) -> None:
    """Connect this process to the other ranks. A collective without an answer fails after `learner.step_timeout_s`."""
    # DeepSpeed 0.19 calls torch's collectives by their old names, in every layer of every step.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    os.environ["LOCAL_RANK"] = "0"  # a rank sees one GPU, or none
    # Otherwise DeepSpeed compiles a C++ all-reduce at the first start: a minute, and there may be no compiler.
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


def gathering(model: PackedModel, sharding: Sharding) -> Any:
    """Return what gathers the parameters of each layer of a frozen, sharded model while it computes.

    The model works as long as this object exists. All ranks call it together.
    """
    deepspeed.zero.register_external_parameter(model, model.head_weight)
    zero = {key: value for key, value in sharding.config["zero_optimization"].items() if key != "offload_optimizer"}
    # Its weights have the type that they are used in: autocast would send a tied embedding in that of the head.
    exact = {"zero_optimization": zero, "torch_autocast": {"enabled": False}}
    return deepspeed.initialize(model=model, config={**sharding.config, **exact})[0]


class DeepSpeedModel:
    """A `PackedModel` with its optimizer. All ranks call each method together, after `join_process_group`.

    Parameters, gradients and optimizer state are float32; matrix products run in `model.compute`, for bfloat16 under
    torch's autocast. Gradients accumulate in float32; at ZeRO stages 1 to 3 DeepSpeed sends those of linear layers
    between ranks in bfloat16. It draws no random numbers.
    """

    def __init__(self, model: PackedModel, section: LearnerSection, ema: float = 0.0, *, offload: bool = False) -> None:
        self._section, self._model, self._compute = section, model, model.compute
        self._trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
        self._engine = _initialized(model, section)
        self._engine.train()
        set_modes(model)
        self._replicas = self._engine.data_parallel_group
        place = dist.get_rank(self._replicas), dist.get_world_size(self._replicas)
        self._average = Average(self._trained, ema, *place, self._replicas) if ema else None
        self._memory = OptimizerMemory(self._engine, section.stage, self._engine.device) if offload else None

    def optimizer_on_device(self) -> AbstractContextManager[None]:
        """Return the block in which the optimizer's state is used; with `offload` it is in CPU memory otherwise."""
        return self._memory.on_device() if self._memory else nullcontext()

    def output(self, micro_batch: MicroBatch) -> Tensor:
        """Return what the model computes for each action [A], without gradient."""
        with torch.no_grad():
            output: Tensor = self._engine(micro_batch)
            return output

    def base_output(self, micro_batch: MicroBatch) -> Tensor:
        """Return what the model computes without its adapters."""
        with adapters_off(self._model.model):
            return self.output(micro_batch)

    def accumulate(
        self,
        part: Part,
        loss_of: Callable[[int, MicroBatch], Callable[..., Tensor]],
        is_refused: Callable[[], bool] = lambda: False,
    ) -> Tensor:
        """Accumulate the gradient of a part and return its summed loss; `loss_of` makes that of each micro-batch.

        `is_refused` is called once, after the last loss. If it is true, the gradient becomes NaN: `step` discards it.
        """
        total = torch.zeros((), device=part.layout.device)
        for number, micro_batch in enumerate(part):
            is_last = number == len(part) - 1
            self._engine.set_gradient_accumulation_boundary(is_last)
            value: Tensor = self._engine(micro_batch, loss_of(number, micro_batch))
            # DeepSpeed has no call that discards what is accumulated, but does so with NaN at every ZeRO stage.
            is_lost = is_last and is_refused()
            self._engine.backward(value * math.nan if is_lost else value, scale_wrt_gas=False)
            if not is_last:
                self._engine.step()
            total += value.detach()
        return total

    def step(self, lr: float) -> float:
        """Clip the gradient and take an optimizer step. Returns the norm before clipping; no step if it is not finite.

        ZeRO checks the norm itself; at stage 0 DeepSpeed would step all the same.
        """
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        norm = self._step()
        if self._average is not None and math.isfinite(norm):
            self._average.update()
        return norm

    def _step(self) -> float:
        if self._section.stage == 0:
            norm = float(total := grad_norm(self._model.parameters()))
            nn.utils.clip_grads_with_norm_(self._model.parameters(), self._section.max_grad_norm, total)
            if not math.isfinite(norm):
                self._model.zero_grad(set_to_none=True)
            self._engine.step()
            return norm
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor under its checkpoint name, in the compute type; adapters are merged into the weights.

        A tensor that is sharded over ranks is gathered when it is its turn: all ranks iterate together.
        """
        return self._weights(self._gathered)

    def averaged_weights(self) -> Iterator[tuple[str, Tensor]] | None:
        """Return the weights of the EMA of the policy, None if there is none."""
        return None if self._average is None else self._weights(self._averaged)

    def _weights(self, full: Full) -> Iterator[tuple[str, Tensor]]:
        model = self._model.model
        state = merged_state(model, full, without=model.all_tied_weights_keys)
        return checkpoint_tensors(model, ((name, self._cast(tensor)) for name, tensor in state))

    def shapes(self) -> Iterator[tuple[str, Tensor]]:
        """Yield what `weights` yields without data, on the meta device; nothing is gathered."""
        return self._weights(_shape)

    def nonfinite(self) -> list[str]:
        """Return the parameters with a value that is not finite on any rank; collective over the ranks."""
        own = [name for name, parameter in self._model.model.named_parameters() if not _is_finite(parameter)]
        return sorted({name for names in gathered(own) for name in names})

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every parameter in float32 by its name without adapters, one whole parameter at a time."""
        others = {f"model.{name}" for name in self._model.model.all_tied_weights_keys}
        others |= {name for name, _ in self._model.named_buffers()}
        return merged_state(self._model, self._gathered, without=others)

    def adapter(self) -> list[tuple[str, Tensor]]:
        """Return the adapters' tensors under peft's names, in the compute type."""
        return [(name, self._cast(tensor)) for name, tensor in adapter_state(self._model.model, self._gathered)]

    def write_adapter(self, tensors: list[tuple[str, Tensor]], base: Path, folder: Path) -> None:
        """Write the adapters as files of peft."""
        write_adapter(self._model.model, tensors, base, folder)

    def _averaged(self, tensor: Tensor) -> Tensor:
        mean = None if self._average is None else self._average.full(tensor)
        return self._gathered(tensor) if mean is None else mean

    def _gathered(self, tensor: Tensor) -> Tensor:
        if self._section.stage == 3 and isinstance(tensor, nn.Parameter):
            with deepspeed.zero.GatheredParameters([tensor]):
                return tensor.detach().clone()
        cut = cut_of(tensor)
        return tensor.detach() if cut is None else cut.whole(tensor.detach())

    def _cast(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._compute) if tensor.is_floating_point() else tensor

    def digest(self) -> str:
        """Return a digest of the float32 parameters; at ZeRO stage 3 of this rank's share of them."""
        return "".join(tensor_digest(_shard(parameter)) for parameter in self._model.parameters())

    def save(self, folder: Path) -> None:
        """Write this rank's part of the exact training state: trained parameters, their optimizer and their EMA.

        State in CPU memory is read there, and so takes no GPU memory from engines that share the GPU.
        """
        save = gathered(secrets.token_hex(8))[0]
        write(self._state(), folder, dist.get_rank(), save)

    def load(self, folder: Path) -> None:
        """Restore the training state that the ranks of any layout saved. Raises RunError if it cannot be read."""
        try:
            files = StateFiles(folder)
            files.check({name: _shape(parameter).numel() for name, parameter in self._trained.items()})
            with self.optimizer_on_device():
                files.restore(shards(self._engine, self._section.stage, self._trained), optimizer_state(self._engine))
                spread(self._engine, self._section.stage)
            for shard in self._average.shards() if self._average else ():
                files.read(shard, AVERAGE, shard.tensor)
        except (OSError, ValueError, SafetensorError) as error:
            raise unreadable(folder.parent, folder.name, error) from error

    def _state(self) -> Iterator[NamedTensor]:
        """Yield what this rank writes; what all ranks hold is divided among them."""
        held = shards(self._engine, self._section.stage, self._trained)
        if self._section.stage == 0:
            place = dist.get_rank(self._replicas), dist.get_world_size(self._replicas)
            held = (shard.share(*place) for shard in held)
        yield from named_state(held, optimizer_state(self._engine))
        for shard in self._average.shards() if self._average else ():
            yield from shard.named(AVERAGE, shard.tensor)


def _shard(parameter: Tensor) -> Tensor:
    """Return this rank's share of a parameter at ZeRO stage 3, the whole of it elsewhere."""
    shard: Tensor = getattr(parameter, "ds_tensor", parameter)
    return shard


def _shape(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor that may be sharded over ranks, without data."""
    cut = cut_of(tensor)
    shape = getattr(tensor, "ds_shape", tensor.shape) if cut is None else cut.shape
    return torch.empty(shape, dtype=tensor.dtype, device="meta")


def _is_finite(parameter: Tensor) -> bool:
    return not parameter.is_floating_point() or bool(_shard(parameter).isfinite().all())


def _initialized(model: PackedModel, section: LearnerSection) -> Any:
    """Return the DeepSpeed engine around the model."""
    if section.stage == 3:
        deepspeed.zero.register_external_parameter(model, model.head_weight)
    config = settings(section, model.compute)
    engine = deepspeed.initialize(model=model, optimizer=make_optimizer(model, section), config=config)[0]
    if section.tensor_parallel > 1:
        engine.first_dataloader_check.remove()  # it pickles the micro-batch and its loss
    return engine
