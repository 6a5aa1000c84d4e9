"""The reference of a run that moves with the policy: every few steps, to the policy or to a moving average of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from agentrl.learner.checkpoint import unreadable, writing
from agentrl.learner.model import PackedModel
from agentrl.learner.tensor_parallel import cut_of

FILE = "reference.safetensors"


def move(reference: PackedModel, policy: Iterable[tuple[str, Tensor]], ema: float) -> None:
    """Set each parameter to ema * reference + (1 - ema) * policy; `policy` yields whole parameters by name."""
    parameters = dict(reference.named_parameters())
    with torch.no_grad():
        for name, values in policy:
            own = parameters[name]
            cut = cut_of(own)
            own.lerp_((values if cut is None else cut.part(values)).to(own), 1 - ema)


def save(reference: PackedModel, folder: Path, *, is_first: bool) -> None:
    """Write the whole parameters on the first rank, in float32; all ranks gather them."""
    whole = {}
    for name, values in reference.named_parameters():
        cut = cut_of(values)
        gathered = values if cut is None else cut.whole(values)
        if is_first:
            whole[name] = gathered.cpu().contiguous()
    if is_first:
        with writing(folder / FILE):
            save_file(whole, folder / FILE)


def load(reference: PackedModel, folder: Path) -> None:
    """Restore what `save` wrote. Raises RunError if it cannot be read."""
    try:
        saved = load_file(folder / FILE)
    except (OSError, SafetensorError) as error:
        raise unreadable(folder.parent, FILE, error) from error
    move(reference, saved.items(), ema=0.0)
