"""Files of a learner checkpoint: `model/`, which `from_pretrained` loads, and the exact training state beside it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from agentrl.errors import RunError
from agentrl.weights.staging import tensor_groups

MODEL, STATE, CRITIC, PROGRESS = "model", "state", "critic", "progress.json"
EMA, ADAPTER = "ema", "adapter"
"""Beside `model/`, where they are trained: the EMA of the policy as a model, and the adapters as peft's files."""
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}
WEIGHTS_FILE = "model.safetensors"
SHARD_BYTES = 4 << 30
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
CACHE_FILES = {"agentrl.json"}
"""Digests of the files of the initial model."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Number of updates so far, and the state of the algorithm."""

    updates: int
    state: dict[str, float] = field(default_factory=dict)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Raise RunError, which names the file, if it cannot be written."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        is_full = any(getattr(error, "errno", None) == code or f"os error {code}" in str(error) for code in FULL)
        advice = ". Make room, then continue with `agentrl resume`" if is_full else ""
        raise RunError(f"cannot write {file}: {getattr(error, 'strerror', None) or error}{advice}") from error


def write_model(source: Path, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, model: Path) -> None:
    """Write the folder `model`: `tensors`, with configuration and tokenizer of the model in `source`."""
    copied = {path.name: path.read_bytes() for path in source.iterdir() if path.is_file() and is_copied(path)}
    config = json.loads(copied["config.json"])
    config.pop("torch_dtype", None)
    copied["config.json"] = json.dumps(config | {"dtype": str(dtype).removeprefix("torch.")}, indent=2).encode()
    with writing(model):
        model.mkdir()
        for name, content in copied.items():
            (model / name).write_bytes(content)
    _write_weights(tensors, model, (model / "config.json").stat().st_mode)


def _write_weights(tensors: Iterable[tuple[str, Tensor]], model: Path, mode: int) -> None:
    """Write tensors as one file, or as files of about SHARD_BYTES with an index; so much is in CPU memory at once."""
    place: dict[str, int] = {}
    total = 0
    on_cpu = ((name, tensor.contiguous().cpu()) for name, tensor in tensors)  # engines may use the GPU meanwhile
    for number, (shard, _) in enumerate(tensor_groups(on_cpu, SHARD_BYTES)):
        with writing(model / f"{number}"):
            save_file(dict(shard), model / f"{number}", {"format": "pt"})
        # safetensors makes files that only the owner can read. Give this one the mode of any other new file.
        (model / f"{number}").chmod(mode)
        place |= dict.fromkeys((name for name, _ in shard), number)
        total += sum(tensor.nbytes for _, tensor in shard)
    count = max(place.values(), default=0) + 1
    names = [f"model-{n + 1:05}-of-{count:05}.safetensors" for n in range(count)] if count > 1 else [WEIGHTS_FILE]
    for number, name in enumerate(names):
        (model / f"{number}").rename(model / name)
    if count > 1:
        index = {"metadata": {"total_size": total}, "weight_map": {name: names[n] for name, n in place.items()}}
        (model / f"{WEIGHTS_FILE}.index.json").write_text(json.dumps(index, indent=2))


def is_copied(file: Path) -> bool:
    """True for a file of the initial model that the trained one has too: not weights, hidden files or digests."""
    is_weights = file.suffix in WEIGHTS or file.name.endswith(".index.json")
    return not (is_weights or file.name.startswith(".") or file.name in CACHE_FILES)


def read_progress(folder: Path) -> Progress:
    """Return the progress in `folder`. Raises RunError if there is none."""
    try:
        return Progress(**json.loads((folder / PROGRESS).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise unreadable(folder, PROGRESS, error) from error


def unreadable(folder: Path, part: str, error: Exception) -> RunError:
    """Return the error for a part of the checkpoint `folder` that cannot be read. The folder is named once."""
    what = "it does not exist" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", None) or error
    return RunError(f"checkpoint {folder} cannot be read: {part}: {what}. Delete it to continue from the previous one.")


def make_empty(folder: Path) -> None:
    """Make an empty folder, in place of what a failed save may have left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def partial(folder: Path) -> Path:
    """Return the folder in which a checkpoint is written until it is complete."""
    return folder.with_name(f"{folder.name}.partial")


def commit(folder: Path, progress: Progress) -> None:
    """Add the progress to the partial checkpoint, sync it to disk and rename it to `folder`, which is replaced."""
    complete = partial(folder)
    with writing(complete / PROGRESS):
        (complete / PROGRESS).write_text(json.dumps(asdict(progress)))
    for path in (*complete.rglob("*"), complete):
        with writing(path):
            _sync(path)
    if folder.exists():
        shutil.rmtree(folder)
    complete.rename(folder)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
