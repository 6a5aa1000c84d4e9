"""A learner checkpoint: in `model/` what `from_pretrained` loads and people share, in `state/` exact training state."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from agentrl.errors import RunError

MODEL, STATE, TAG = "model", "state", "ranks"
WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}
OF_THE_CACHE = {"agentrl.json"}
"""Digests of the files that the model began as."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the learner came, and how many ranks at which ZeRO stage share its state."""

    updates: int
    ranks: int
    zero: int


def write_model(source: Path, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, folder: Path) -> None:
    """Write `tensors` and the configuration and tokenizer of the model in `source` to the `model/` of a checkpoint."""
    model = folder / MODEL
    model.mkdir()
    for path in source.iterdir():
        if path.is_file() and is_shared(path):
            shutil.copyfile(path, model / path.name)
    config = json.loads((model / "config.json").read_text())
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    (model / "config.json").write_text(json.dumps(config, indent=2))
    weights = model / "model.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in tensors}, weights, metadata={"format": "pt"})
    # safetensors writes for the owner alone; what is shared has the modes that any new file has here.
    weights.chmod((model / "config.json").stat().st_mode)


def is_shared(file: Path) -> bool:
    """True for a file of the first model that the trained one has too: no weights, nothing hidden, no digests."""
    is_weights = file.suffix in WEIGHTS or file.name.endswith(".index.json")
    return not (is_weights or file.name.startswith(".") or file.name in OF_THE_CACHE)


def write_progress(folder: Path, progress: Progress) -> None:
    """Write the progress; the last file of a checkpoint."""
    (folder / "progress.json").write_text(json.dumps(asdict(progress)))


def read_progress(folder: Path, ranks: int, zero: int) -> Progress:
    """The progress in `folder`; raises RunError when there is none, or when it belongs to another layout of ranks."""
    path = folder / "progress.json"
    try:
        progress = Progress(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise RunError(
            f"checkpoint {folder} cannot be read: {path.name}: {error}. Delete it to go on from the one before."
        ) from error
    if (progress.ranks, progress.zero) != (ranks, zero):
        raise RunError(
            f"checkpoint {folder} was written by {progress.ranks} ranks at ZeRO stage {progress.zero}, "
            f"this learner has {ranks} at stage {zero}. Set learner.ranks and learner.zero_stage as they were."
        )
    return progress


def partial(folder: Path) -> Path:
    """The name under which a checkpoint is written until it is whole."""
    return folder.with_name(f"{folder.name}.partial")


def commit(folder: Path) -> None:
    """Make the partial checkpoint durable and give it its name; one of that name is replaced."""
    written = partial(folder)
    for path in (*written.rglob("*"), written):
        _sync(path)
    if folder.exists():
        shutil.rmtree(folder)
    written.rename(folder)
    _sync(folder.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
