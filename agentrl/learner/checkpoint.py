"""A learner checkpoint: a model folder that loads with `from_pretrained`, and exact training state in `state/`."""

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

STATE, TAG = "state", "ranks"
WEIGHTS = {".safetensors", ".bin", ".pt", ".gguf"}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the learner came, and how many ranks at which ZeRO stage share its state."""

    updates: int
    ranks: int
    zero: int


def write_model(source: Path, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, folder: Path) -> None:
    """Write `tensors` beside the configuration and tokenizer of the model in `source`."""
    for path in source.iterdir():
        if path.is_file() and path.suffix not in WEIGHTS and not path.name.endswith(".index.json"):
            shutil.copyfile(path, folder / path.name)
    config = json.loads((folder / "config.json").read_text())
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file(
        {name: tensor.contiguous() for name, tensor in tensors}, folder / "model.safetensors", metadata={"format": "pt"}
    )


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
            f"this learner has {ranks} at stage {zero}. Set learner.ranks and learner.zero as they were."
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
