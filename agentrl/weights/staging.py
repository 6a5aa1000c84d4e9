"""The trainer's side of the shared-memory transfer: it writes weights as buckets, files that engines map."""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agentrl.errors import DeadlineError
from agentrl.types import TensorSpec, Version

if TYPE_CHECKING:  # the driver imports this module and needs no torch, which takes seconds to import
    import torch

Bucket = dict[str, Any]
NamedTensor: TypeAlias = "tuple[str, torch.Tensor]"
_ALIGN = 64
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class StagedBucket:
    """A part of the weights in files: the argument of `Engine.load`, and what the manifest says of its tensors."""

    load: Bucket
    tensors: tuple[TensorSpec, ...]
    path: Path
    nbytes: int
    is_last: bool

    async def load_on(self, _host: str) -> Bucket:
        """Return what engines of the host load on which it was staged."""
        return self.load

    def moved(self, path: Path) -> Bucket:
        """Return what engines load where a copy of the files is at `path`."""
        return {key: str(path) if value == str(self.path) else value for key, value in self.load.items()}

    def discard(self) -> None:
        """Remove the files; engines that still map them keep their contents. Idempotent."""
        remove_staged(self.path)


def stage(named_tensors: Iterable[NamedTensor], fallback: Path, bucket_bytes: int) -> Iterator[StagedBucket]:
    """Write tensors, by checkpoint names, as buckets of at most `bucket_bytes`; a larger tensor gets one to itself.

    At most one bucket more than those that were yielded is in memory. The files are in /dev/shm; those that do not fit
    there are in `fallback`.
    """
    for group, is_last in tensor_groups(named_tensors, bucket_bytes):
        size = sum(_padded(tensor.nbytes) for _, tensor in group)
        handle, name = tempfile.mkstemp(".bin", staging_prefix(fallback), staging_root(size, fallback))
        os.close(handle)
        try:
            yield _written(group, Path(name), size, is_last=is_last)
        except BaseException:
            remove_staged(Path(name))
            raise


def stage_adapter(named: Sequence[NamedTensor], fallback: Path, write: Callable[[Path], None]) -> StagedBucket:
    """Let `write` put an adapter of these tensors into a new folder, which engines read as a bucket."""
    root = staging_root(sum(_padded(tensor.nbytes) for _, tensor in named), fallback)
    folder = Path(tempfile.mkdtemp(prefix=staging_prefix(fallback), dir=root))
    try:
        write(folder)
    except BaseException:
        remove_staged(folder)
        raise
    nbytes = sum(tensor.nbytes for _, tensor in named)
    return StagedBucket({"adapter": str(folder)}, tuple(spec_of(*one) for one in named), folder, nbytes, is_last=True)


async def stage_folder(
    model: Path, fallback: Path, bucket_bytes: int, _version: Version, deadline_s: float
) -> AsyncGenerator[StagedBucket]:
    """Stage the weights of a model folder as they are. Raises DeadlineError."""
    buckets = stage(_stored(model), fallback, bucket_bytes)
    ends_at = time.monotonic() + deadline_s
    while True:
        try:
            async with asyncio.timeout(ends_at - time.monotonic()):
                bucket = await asyncio.to_thread(next, buckets, None)
        except TimeoutError:
            raise DeadlineError(f"reading the weights in {model} took longer than {deadline_s:g} s") from None
        if bucket is None:
            return
        yield bucket


def _stored(model: Path) -> Iterator[NamedTensor]:
    """Yield the tensors of a model folder, one at a time."""
    from safetensors import safe_open

    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                yield name, tensors.get_tensor(name)


def discard_staged(name: str, fallback: Path) -> None:
    """Remove what was staged under a name on this host. Idempotent."""
    for root in (_SHARED_MEMORY, fallback):
        remove_staged(root / name)


def discard_leftovers(fallback: Path) -> None:
    """Remove what a process that was killed had staged with this `fallback`."""
    for root in (_SHARED_MEMORY, fallback):
        for path in root.glob(f"{staging_prefix(fallback)}*"):
            remove_staged(path)


def remove_staged(path: Path) -> None:
    """Remove a file or a folder that was staged. Idempotent."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def staging_prefix(fallback: Path) -> str:
    """Return the prefix of the names of what is staged with this `fallback`."""
    return f"agentrl-weights-{folder_key(fallback)}-"


def folder_key(folder: Path) -> str:
    """Return a short name for a folder, to use in the names of files elsewhere."""
    return hashlib.sha256(bytes(folder.resolve())).hexdigest()[:12]


def tensor_groups(named_tensors: Iterable[NamedTensor], bucket_bytes: int) -> Iterator[tuple[list[NamedTensor], bool]]:
    """Yield the tensors of each bucket, and whether it is the last.

    The list is emptied when the next one is asked for: tensors may be gathered only for it.
    """
    group: list[NamedTensor] = []
    size = 0
    for name, tensor in named_tensors:
        if group and size + _padded(tensor.nbytes) > bucket_bytes:
            yield group, False
            group.clear()
            size = 0
        group.append((name, tensor.detach()))
        size += _padded(tensor.nbytes)
    if group:
        yield group, True


def staging_root(size: int, fallback: Path) -> Path:
    """Return the folder for files of so many bytes."""
    return _SHARED_MEMORY if shared_memory_takes(size) else fallback


def shared_memory_takes(size: int) -> bool:
    """Return whether /dev/shm has room for so many bytes."""
    return _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free > size + (16 << 20)


def _written(group: list[NamedTensor], path: Path, size: int, *, is_last: bool) -> StagedBucket:
    """Write one bucket."""
    import torch

    entries = []
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))  # a full disk is an error here, not a SIGBUS later
        memory = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.uint8)
    offset = 0
    for name, tensor in group:
        memory[offset : offset + tensor.nbytes].copy_(tensor.reshape(-1).view(torch.uint8))
        entries.append({"name": name, "dtype": _dtype_name(tensor), "shape": list(tensor.shape), "offset": offset})
        offset += _padded(tensor.nbytes)
    tensors = tuple(spec_of(name, tensor) for name, tensor in group)
    nbytes = sum(tensor.nbytes for _, tensor in group)
    return StagedBucket({"path": str(path), "tensors": entries}, tensors, path, nbytes, is_last)


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    """Return the entry of a tensor in a manifest; its digest is computed on the tensor's device."""
    from agentrl.weights.digest import tensor_digest

    return TensorSpec(name, tuple(tensor.shape), _dtype_name(tensor), tensor_digest(tensor))


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
