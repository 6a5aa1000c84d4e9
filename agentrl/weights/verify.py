"""Verification: what an engine's worker received, compared with the manifest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentrl.errors import WeightsError


@dataclass(frozen=True, slots=True)
class Received:
    """An update as one worker received it.

    `digests` are (checkpoint name, digest) of every tensor that arrived, `unloaded` are the model's parameters into
    which no tensor was loaded, and `stale` the layers that kept their old tensors.
    """

    digests: Sequence[tuple[str, str]] = ()
    unloaded: Sequence[str] = ()
    stale: Sequence[str] = ()


def verify(promised: Mapping[str, str], received: Received) -> None:
    """Raise WeightsError naming the first fault, unless every promised tensor arrived unchanged and was loaded."""
    arrived = dict(received.digests)
    if missing := [name for name in promised if name not in arrived]:
        raise WeightsError(f"tensor {missing[0]!r} did not arrive{_more(missing)}")
    if unknown := [name for name in arrived if name not in promised]:
        raise WeightsError(f"tensor {unknown[0]!r} arrived but is not in the manifest{_more(unknown)}")
    if different := [name for name, digest in promised.items() if arrived[name] != digest]:
        name = different[0]
        detail = f"digest {arrived[name]}, in the manifest {promised[name]}"
        raise WeightsError(f"tensor {name!r} changed on the way: {detail}{_more(different)}")
    if received.unloaded:
        raise WeightsError(f"parameter {received.unloaded[0]!r} was not loaded{_more(received.unloaded)}")
    if received.stale:
        raise WeightsError(f"layer {received.stale[0]!r} kept its old weights{_more(received.stale)}")


def _more(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
