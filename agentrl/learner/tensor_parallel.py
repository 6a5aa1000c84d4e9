"""Groups of ranks that share each weight matrix (Megatron, Shoeybi et al., arXiv:1909.08053), by DeepSpeed's AutoTP.

The first matrices of attention and of the MLP are divided by their outputs, the last by their inputs, as the plan of
the model's authors says (`base_model_tp_plan` of transformers). Embeddings, head and norms are on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.checkpoint.constants import DS_AUTOTP_UC_META
from deepspeed.module_inject.auto_tp import AutoTP
from deepspeed.module_inject.autotp_config import AutoTPConfig
from deepspeed.module_inject.layers import TensorParallel_Layer
from deepspeed.module_inject.tp_plan_converter import TPPlanConverter
from deepspeed.utils import groups
from torch import Tensor, nn
from torch import distributed as dist
from transformers import PreTrainedModel

from agentrl.config.sharing import check_matrices, check_plan
from agentrl.learner.text_config import heads_of, text_config

LINEAR = (nn.Linear, TensorParallel_Layer)
CUT = "agentrl_cut"


def check_models(folders: Iterable[Path], size: int) -> None:
    """Raise ConfigError for a model whose matrices groups of `size` ranks cannot share."""
    for folder in folders:
        config = text_config(folder)
        styles = (config.base_model_tp_plan or {}).values()
        check_plan(f"the model in {folder} ({config.model_type})", styles, size)
        check_matrices(f"the model in {folder}", *heads_of(config), config.intermediate_size, size)


def divide(model: PreTrainedModel, size: int) -> None:
    """Leave this rank its part of the model, in place and on its device; all ranks call this together."""
    groups._init_tp_mesh_device(size)
    deepspeed.set_autotp_mode(training=True)
    config, group = model.config.get_text_config(), groups.get_tensor_model_parallel_group()
    shapes = {parameter: parameter.shape for parameter in model.parameters()}
    plan = AutoTPConfig(size, TPPlanConverter.convert(config.base_model_tp_plan))
    linear = (nn.Linear,)
    autotp = AutoTP(model, (), "", None, linear, None, partition_config=plan, model_config=config, training_mode=True)
    autotp.set_tensor_parallel_config(size, group)
    autotp._replace_module(model)
    autotp.register_replicated_grad_hooks(model)
    model.to(get_accelerator().current_device_name())
    for parameter, shape in shapes.items():
        layout = getattr(parameter, DS_AUTOTP_UC_META, None) or {}
        setattr(parameter, CUT, Cut(shape, layout.get("partition_dim"), group))


def parts_of_ranks(own: Tensor, size: int, group: dist.ProcessGroup | None) -> list[Tensor]:
    """Return the equal parts of a tensor that the `size` ranks of a group hold; they call this together.

    NCCL reads GPU memory alone: parts that wait in CPU memory are returned on the GPU.
    """
    own = own.detach().contiguous()
    if dist.get_backend(group) == "nccl":
        own = own.cuda()
    parts = [torch.empty_like(own) for _ in range(size)]
    dist.all_gather(parts, own, group)
    return parts


@dataclass(frozen=True)
class Cut:
    """How the ranks of a `group` hold a parameter of this shape: equal parts along `dim`; None: each has all of it."""

    shape: torch.Size
    dim: int | None
    group: dist.ProcessGroup

    @property
    def size(self) -> int:
        """The number of ranks."""
        return dist.get_world_size(self.group)

    @property
    def index(self) -> int:
        """The place of this rank among them."""
        return dist.get_rank(self.group)

    def whole(self, part: Tensor) -> Tensor:
        """Return the whole tensor; the ranks call this together."""
        return part if self.dim is None else torch.cat(self._gathered(part), self.dim)

    def part(self, whole: Tensor) -> Tensor:
        """Return this rank's part of a whole tensor."""
        return whole if self.dim is None else whole.chunk(self.size, self.dim)[self.index]

    def _gathered(self, part: Tensor) -> list[Tensor]:
        return parts_of_ranks(part, self.size, self.group)

    # --- files: elements of the flattened parameter, whose parts by rows follow each other, those by columns alternate

    def written(self, start: int, values: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield what this rank writes, each with its start in the whole parameter; the ranks iterate together.

        `values` are those of its part from `start` on.
        """
        if self.dim == 0:
            yield start + self.index * self._numel, values
            return
        rows = [(start, values)] if self.dim is None else self._rows(start, self._gathered(values))
        yield from rows if self.index == 0 else ()

    def read(self, start: int, length: int, read: Callable[[int, int], Tensor]) -> Tensor:
        """Return `length` elements of this rank's part; `read` returns those of the whole, by start and length."""
        if self.dim != 1:
            return read(start + (self.index * self._numel if self.dim == 0 else 0), length)
        width, row = self._width, self.shape[1]
        first, last = start // width, -(-(start + length) // width)
        whole = read(first * row, (last - first) * row).view(-1, row)
        return self.part(whole).flatten()[start - first * width :][:length]

    @property
    def _numel(self) -> int:
        return self.shape.numel() // self.size

    @property
    def _width(self) -> int:
        return self.shape[1] // self.size

    def _rows(self, start: int, parts: Sequence[Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Yield the parts of all ranks: whole rows together, and those of a row that is not whole one by one."""
        width, stop = self._width, start + len(parts[0])
        first = min(-(-start // width) * width, stop)
        last = max(first, stop // width * width)
        if first < last:
            whole = [part[first - start : last - start].view(-1, width) for part in parts]
            yield first * self.size, torch.cat(whole, 1).flatten()
        for low, high in ((start, first), (last, stop)):
            row, column = divmod(low, width)
            for index, part in enumerate(parts if low < high else ()):
                yield row * self.shape[1] + index * width + column, part[low - start : high - start]


def cut_of(tensor: Tensor) -> Cut | None:
    """Return how ranks share a parameter; None if they share none."""
    cut: Cut | None = getattr(tensor, CUT, None)
    return cut


def grad_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the norm of the gradient of whole parameters: parts are summed over their ranks, the others count once."""
    parts: list[Tensor] = []
    others: list[Tensor] = []
    group: dist.ProcessGroup | None = None
    for parameter in parameters:
        cut = cut_of(parameter)
        group = cut.group if cut is not None else group
        if parameter.grad is not None:
            (parts if cut is not None and cut.dim is not None else others).append(parameter.grad)
    norm = nn.utils.get_total_norm(others)
    if group is None:
        return norm
    squares = nn.utils.get_total_norm(parts) ** 2
    dist.all_reduce(squares, group=group)
    return (squares + norm**2).sqrt()
