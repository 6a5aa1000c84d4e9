"""The trainer's side of the shared-memory transfer: it writes weights as buckets, files that engines map."""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from agentrl.errors import DeadlineError
from agentrl.types import TensorSpec, Version, WeightManifest

if TYPE_CHECKING:  # the driver imports this module and needs no torch, which takes seconds to import
    import torch

Bucket = dict[str, Any]
NamedTensor: TypeAlias = "tuple[str, torch.Tensor]"
_ALIGN = 64
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Staged:
    """Weights in files: the arguments of `Engine.load` and `Engine.finish_update`, the files' folders, their bytes."""

    buckets: tuple[Bucket, ...]
    manifest: WeightManifest
    folders: tuple[Path, ...]
    nbytes: int

    def discard(self) -> None:
        """Remove the files; engines that still map them keep their contents. Idempotent."""
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)


def stage(
    named_tensors: Iterable[NamedTensor], version: Version, fallback: Path, bucket_bytes: int = 256 << 20
) -> Staged:
    """Write tensors, by checkpoint names, as buckets of at most `bucket_bytes`; a larger tensor gets one to itself.

    The files are in a new folder under /dev/shm; those that do not fit there are in a new folder under `fallback`.
    """
    folders: dict[Path, Path] = {}
    buckets: list[Bucket] = []
    specs: list[TensorSpec] = []
    nbytes = 0
    try:
        for number, group in enumerate(_groups(named_tensors, bucket_bytes)):
            size = sum(_padded(tensor.nbytes) for _, tensor in group)
            root = _root(size, fallback)
            if root not in folders:
                folders[root] = Path(tempfile.mkdtemp(prefix=staging_prefix(fallback), dir=root))
            buckets.append(_write(group, folders[root] / f"{number}.bin", size))
            specs.extend(spec_of(name, tensor) for name, tensor in group)
            nbytes += sum(tensor.nbytes for _, tensor in group)
    except BaseException:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Staged(tuple(buckets), WeightManifest(version, tuple(specs)), tuple(folders.values()), nbytes)


def stage_adapter(
    named: Sequence[NamedTensor], version: Version, fallback: Path, write: Callable[[Path], None]
) -> Staged:
    """Let `write` put an adapter of these tensors into a new folder, which engines read as a bucket."""
    root = _root(sum(_padded(tensor.nbytes) for _, tensor in named), fallback)
    folder = Path(tempfile.mkdtemp(prefix=staging_prefix(fallback), dir=root))
    try:
        write(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    manifest = WeightManifest(version, tuple(spec_of(name, tensor) for name, tensor in named))
    return Staged(({"adapter": str(folder)},), manifest, (folder,), sum(tensor.nbytes for _, tensor in named))


async def stage_folder(model: Path, fallback: Path, bucket_bytes: int, version: Version, deadline_s: float) -> Staged:
    """Stage the weights of a model folder as they are. Raises DeadlineError."""
    try:
        async with asyncio.timeout(deadline_s):
            return await asyncio.to_thread(_stage_folder, model, fallback, bucket_bytes, version)
    except TimeoutError:
        raise DeadlineError(f"reading the weights in {model} took longer than {deadline_s:g} s") from None


def _stage_folder(model: Path, fallback: Path, bucket_bytes: int, version: Version) -> Staged:
    from safetensors.torch import load_file

    tensors = (item for file in sorted(model.glob("*.safetensors")) for item in load_file(file).items())
    return stage(tensors, version, fallback, bucket_bytes)


def discard_leftovers(fallback: Path) -> None:
    """Remove what a process that was killed had staged with this `fallback`."""
    for root in (_SHARED_MEMORY, fallback):
        for folder in root.glob(f"{staging_prefix(fallback)}*"):
            shutil.rmtree(folder, ignore_errors=True)


def staging_prefix(fallback: Path) -> str:
    """Return the prefix of the names of folders that are staged with this `fallback`."""
    return f"agentrl-weights-{folder_key(fallback)}-"


def folder_key(folder: Path) -> str:
    """Return a short name for a folder, to use in the names of files elsewhere."""
    return hashlib.sha256(bytes(folder.resolve())).hexdigest()[:12]


def _groups(named_tensors: Iterable[NamedTensor], bucket_bytes: int) -> Iterator[list[NamedTensor]]:
    group: list[NamedTensor] = []
    size = 0
    for name, tensor in named_tensors:
        if group and size + _padded(tensor.nbytes) > bucket_bytes:
            yield group
            group, size = [], 0
        group.append((name, tensor.detach()))
        size += _padded(tensor.nbytes)
    if group:
        yield group


def _root(size: int, fallback: Path) -> Path:
    if _SHARED_MEMORY.is_dir() and shutil.disk_usage(_SHARED_MEMORY).free > size + (16 << 20):
        return _SHARED_MEMORY
    return fallback


def _write(group: list[NamedTensor], path: Path, size: int) -> Bucket:
    import torch

    tensors = []
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, max(size, 1))  # a full disk is an error here, not a SIGBUS later
        memory = torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=torch.uint8)
    offset = 0
    for name, tensor in group:
        memory[offset : offset + tensor.nbytes].copy_(tensor.reshape(-1).view(torch.uint8))
        tensors.append({"name": name, "dtype": _dtype_name(tensor), "shape": list(tensor.shape), "offset": offset})
        offset += _padded(tensor.nbytes)
    return {"path": str(path), "tensors": tensors}


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    """Return the entry of a tensor in a manifest; its digest is computed on the tensor's device."""
    from agentrl.weights.digest import tensor_digest

    return TensorSpec(name, tuple(tensor.shape), _dtype_name(tensor), tensor_digest(tensor))


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
