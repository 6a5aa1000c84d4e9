"""Attention of packs: flash attention over gathered keys, against tiles in float32."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from agentrl.learner.attention.gathered import Gathered, Kernel
from agentrl.learner.attention.spans import Attention
from agentrl.learner.attention.tiles import Tiles
from benchmarks.packs import Heads, Pack, Trees, states, tree
from verification.check import BoundError, Setting, SkipError, largest, within
from verification.memory import MIB, Peak

PACKS: dict[str, Trees] = {
    "one sequence": [(0, [700])],
    "tree of 16": [(300, [*range(20, 100, 5)])],
    "several trees": [(3, [4, 5]), (0, [33]), (600, [300, 1, 20])],
}
HEADS = (Heads(9, 3, 64), Heads(8, 8, 64), Heads(14, 2, 64), Heads(16, 4, 128))
"""SmolLM2's, without groups, Qwen2.5-0.5B's, and the size of Llama's."""
WINDOWS = (None, 100)
BFLOAT16, FLOAT32 = 1e-2, 1e-5
"""Bounds of ||difference|| / ||exact||, of the output and of each gradient."""
GROWTH = 4.6
"""Bound of the peak's growth where the tokens grow fourfold."""
LONG = 32_768


def equality(setting: Setting, kernel: Kernel = varlen_attn) -> str:
    """Compare output and gradients of all packs, heads and windows with tiles in float32 on the CPU."""
    _check_kernel(kernel)
    device, worst = torch.device(setting.device), {"flash": 0.0, "tiles": 0.0, "float32": 0.0}
    for (name, trees), heads, window in product(PACKS.items(), HEADS, WINDOWS):
        pack = Pack.of(trees)
        tiles = Tiles(pack.spans, pack.positions_N.to(device))
        given = states(len(pack), heads)
        exact = _outcome(Tiles(pack.spans, pack.positions_N), [one.float() for one in given], window)
        found = {
            "flash": _outcome(Gathered(pack.spans, device, kernel), _on(device, given), window),
            "tiles": _outcome(tiles, _on(device, given), window),
            "float32": _outcome(tiles, [one.float() for one in _on(device, given)], window),
        }
        for form, tensors in found.items():
            bound = FLOAT32 if form == "float32" else BFLOAT16
            error = within(f"the error of {form} ({name}, heads {heads}, window {window})", far(tensors, exact), bound)
            worst[form] = max(worst[form], error)
    return (
        f"{len(PACKS) * len(HEADS) * len(WINDOWS)} cases; relative error of output and gradients against float32 on "
        f"the CPU: flash attention in bfloat16 {worst['flash']:.1e}, tiles in bfloat16 {worst['tiles']:.1e} (bound "
        f"{BFLOAT16:g}), tiles in float32 {worst['float32']:.1e} (bound {FLOAT32:g})"
    )


def memory(setting: Setting, tokens: int = LONG, most: float = GROWTH) -> str:
    """Measure the peak of a long sequence and of a tree of 16, and compare the result with tiles."""
    device, said = torch.device(setting.device), []
    for name, trees in {"one sequence": [(0, [tokens])], "a tree of 16": tree(tokens)}.items():
        shorter: Trees = [(0, [tokens // 4])] if name == "one sequence" else tree(tokens // 4)
        peaks = [_peak(Pack.of(each), device) for each in (shorter, trees)]
        growth = within(f"the growth of the peak of {name}", peaks[1] / max(1, peaks[0]), most)
        pack, given = Pack.of(trees), _on(device, states(tokens, HEADS[0]))
        tiles = _outcome(Tiles(pack.spans, pack.positions_N.to(device)), given, None)
        error = within(f"the error of {name}", far(_outcome(_fastest(pack, device), given, None), tiles), 2 * BFLOAT16)
        said.append(f"{name} {peaks[1] / MIB:,.0f} MiB ({growth:.1f} times that of a quarter, error {error:.1e})")
    dense = f"a bias over all pairs alone would take {2 * tokens**2 / MIB:,.0f} MiB"
    return f"peak of forward and backward pass with {tokens:,} tokens: {', '.join(said)}; {dense}"


def _check_kernel(kernel: Kernel) -> None:
    """Raise SkipError for a PyTorch whose flash attention lacks what agentrl calls."""
    missing = {"enable_gqa", "window_size", "scale"} - inspect.signature(kernel).parameters.keys()
    if missing:
        raise SkipError(f"varlen_attn of PyTorch {torch.__version__} has no {', '.join(sorted(missing))}")


def _fastest(pack: Pack, device: torch.device) -> Attention:
    return Gathered(pack.spans, device) if device.type == "cuda" else Tiles(pack.spans, pack.positions_N)


def _peak(pack: Pack, device: torch.device) -> int:
    attention, given = _fastest(pack, device), _on(device, states(len(pack), HEADS[0]))
    with Peak(device.type) as peak:
        _outcome(attention, given, None)
    return peak.nbytes


def _on(device: torch.device, given: Sequence[Tensor]) -> list[Tensor]:
    return [one.to(device) for one in given]


def _outcome(attention: Attention, given: Sequence[Tensor], window: int | None) -> list[Tensor]:
    """Return the output and the gradients of queries, keys and values."""
    leaves = [one.detach().requires_grad_() for one in given[:3]]
    out = attention(leaves[0], leaves[1], leaves[2], leaves[0].shape[-1] ** -0.5, window)
    return [out.detach(), *torch.autograd.grad(out, leaves, given[3].to(out.dtype))]


def far(found: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Return the largest relative error of a tensor, by norms. Raises BoundError for values that are not finite."""
    return largest(_errors(found, exact))


def _errors(found: Sequence[Tensor], exact: Sequence[Tensor]) -> Iterator[float]:
    for one, other in zip(found, exact, strict=True):
        if not one.isfinite().all():
            raise BoundError("a result is not finite")
        difference, size = one.double().cpu() - other.double().cpu(), other.double().cpu().norm()
        yield float(difference.norm() / size)
