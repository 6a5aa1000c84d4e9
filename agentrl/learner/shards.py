"""The training state of a model in files that every layout reads: parts of flattened tensors, by parameter and kind.

A file holds tensors named `parameter/kind/start`: elements of a parameter (kind "parameter"), of its EMA, or of a state
of its optimizer such as "exp_avg", in float32 and from the element `start`. State that has another shape than the
parameter, such as the number of steps, is whole under `parameter/kind`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from agentrl.errors import LearnerError
from agentrl.learner.checkpoint import CRITIC, SHARD_BYTES, STATE, writing
from agentrl.learner.tensor_parallel import Cut
from agentrl.weights.staging import NamedTensor, tensor_groups

PARAMETER, AVERAGE = "parameter", "ema"
SAVE = "save"
"""The entry of a file's metadata that names the checkpoint it belongs to."""
OptimizerState = MutableMapping[Tensor, dict[str, Any]]
"""The state of an optimizer of PyTorch, by the tensors that it updates."""


@dataclass(frozen=True)
class Shard:
    """The elements [start, start + length) of a flattened parameter, or of a rank's part of it by a `cut`.

    They are at `offset` in the flattened `tensor`, which may hold shards of other parameters too.
    """

    name: str
    start: int
    length: int
    tensor: Tensor
    offset: int = 0
    cut: Cut | None = None

    def of(self, values: Tensor) -> Tensor:
        """Return a view [length] of the shard in `tensor`, or in another tensor of its shape."""
        return values.detach().view(-1)[self.offset : self.offset + self.length]

    def named(self, kind: str, values: Tensor) -> Iterator[NamedTensor]:
        """Yield the shard in `values`, which has the shape of its tensor, by its name in a file.

        The ranks that share a parameter iterate together.
        """
        own = self.of(values)
        parts = self.cut.written(self.start, own) if self.cut and self.length else [(self.start, own)]
        return ((f"{self.name}/{kind}/{start}", part) for start, part in parts)

    def share(self, rank: int, ranks: int) -> Shard:
        """Return the part that this rank writes of a shard that all ranks hold."""
        size = -(-self.length // ranks)
        first = min(rank * size, self.length)
        length = min(size, self.length - first)
        return replace(self, start=self.start + first, length=length, offset=self.offset + first)


def named_state(shards: Iterable[Shard], state: OptimizerState) -> Iterator[NamedTensor]:
    """Yield parameters and their optimizer's state under their names in a file."""
    for shard in shards:
        yield from shard.named(PARAMETER, shard.tensor)
        own = state.get(shard.tensor, {})
        for kind in sorted(own):  # ranks gather parts in the same order
            value = own[kind]
            if isinstance(value, Tensor) and value.shape == shard.tensor.shape:
                yield from shard.named(kind, value)
            elif shard.start == 0:
                yield f"{shard.name}/{kind}", torch.as_tensor(value)


def write(named: Iterable[NamedTensor], folder: Path, rank: int, save: str = "") -> None:
    """Write the part of a rank, in files of about SHARD_BYTES, one of them also if the part is empty.

    `save` is the same for the files that belong together. At most SHARD_BYTES are in CPU memory at once.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_file({}, _file(folder, rank, 0), {SAVE: save})
    for number, (group, _) in enumerate(tensor_groups(named, SHARD_BYTES)):
        tensors = {name: tensor.to("cpu", copy=True) for name, tensor in group if tensor.numel()}
        with writing(file := _file(folder, rank, number)):
            save_file(tensors, file, {SAVE: save})


def refuse_incomplete(folder: Path, learner_ranks: int, critic_ranks: int) -> None:
    """Raise LearnerError, which names them, unless this host sees the parts of so many ranks in a checkpoint."""
    parts = (("learner", STATE, learner_ranks), ("critic", CRITIC, critic_ranks))
    written = {f"{role} rank {rank}": _file(folder / part, rank, 0) for role, part, n in parts for rank in range(n)}
    if lacking := [name for name, path in written.items() if not path.is_file()]:
        raise LearnerError(
            f"{folder} lacks the files of {', '.join(lacking)}, and no checkpoint is written: put the run folder on a "
            "file system that all machines of the cluster share (docs/scale-out.md)"
        )


def _file(folder: Path, rank: int, number: int) -> Path:
    return folder / f"rank-{rank:05}-{number:05}.safetensors"


class StateFiles:
    """The files of all ranks in a folder. At first their headers are read, later the elements that are asked for.

    Raises OSError for a file that cannot be opened, and ValueError for one that is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._parts: dict[str, dict[str, list[tuple[int, int, Any]]]] = defaultdict(lambda: defaultdict(list))
        self._whole: dict[str, dict[str, Any]] = defaultdict(dict)
        saves: dict[str, str] = {}
        for path in sorted(folder.glob("rank-*.safetensors")):
            try:
                file: Any = safe_open(path, "pt")
            except SafetensorError as error:
                raise ValueError(f"{path.name}: {error}") from error
            saves.setdefault((file.metadata() or {}).get(SAVE, ""), path.name)
            if len(saves) > 1:
                first, other = saves.values()
                raise ValueError(f"{first} and {other} are of two checkpoints")
            for key in file.keys():  # noqa: SIM118 (it is no mapping)
                values = file.get_slice(key)
                name, kind, *start = key.split("/")
                if start:
                    self._parts[name][kind].append((int(start[0]), *values.get_shape(), values))
                else:
                    self._whole[name][kind] = file.get_tensor(key)

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raise ValueError unless the files hold all elements of these parameters, by name, and of no others."""
        saved = {name: sum(length for _, length, _ in kinds[PARAMETER]) for name, kinds in self._parts.items()}
        for name in sorted(saved.keys() | sizes.keys()):
            if saved.get(name, 0) != sizes.get(name, 0):
                raise ValueError(f"it has {saved.get(name, 0)} of {sizes.get(name, 0)} elements of {name}")

    def read(self, shard: Shard, kind: str, values: Tensor) -> None:
        """Copy a shard into `values`, which has the shape of its tensor. Raises ValueError if elements are absent."""
        own, fill = shard.of(values), partial(self._fill, shard.name, kind)
        if shard.cut is None:
            fill(shard.start, own)
        else:
            own.copy_(shard.cut.read(shard.start, shard.length, lambda start, size: fill(start, own.new_empty(size))))

    def _fill(self, name: str, kind: str, at: int, values: Tensor) -> Tensor:
        """Copy the elements of a whole parameter from `at` on into `values`, and return it."""
        found = 0
        for start, length, saved in self._parts[name][kind]:
            first, last = max(start, at), min(start + length, at + len(values))
            if first < last:
                values[first - at : last - at] = saved[first - start : last - start]
                found += last - first
        if found != len(values):
            raise ValueError(f"it has {found} of {len(values)} elements of the {kind} of {name}")
        return values

    def restore(self, shards: Iterable[Shard], state: OptimizerState) -> None:
        """Restore parameters and their optimizer's state, which is replaced. Raises ValueError for one that is absent.

        A tensor that holds several parameters has one number of steps: they were all updated in every step.
        """
        state.clear()
        for shard in shards:
            own = state[shard.tensor]
            self.read(shard, PARAMETER, shard.tensor)
            for kind in self._parts[shard.name].keys() - {PARAMETER, AVERAGE}:
                if kind not in own:
                    own[kind] = torch.zeros_like(shard.tensor, dtype=self._dtype(shard.name, kind))
                self.read(shard, kind, own[kind])
            own |= {kind: _counted(value, shard.tensor) for kind, value in self._whole[shard.name].items()}

    def _dtype(self, name: str, kind: str) -> torch.dtype:
        _, _, saved = self._parts[name][kind][0]
        dtype: torch.dtype = saved[:1].dtype
        return dtype


def _counted(value: Tensor, tensor: Tensor) -> Tensor | int:
    """Return whole state of an optimizer as it is beside `tensor`; a number of steps that was an int is one again."""
    return int(value) if value.dtype == torch.int64 else value.to(tensor.device, copy=True)
