"""Verification names the first fault."""

from __future__ import annotations

import pytest

from agentrl.errors import WeightsError
from agentrl.weights.verify import Received, verify

PROMISED = {"a": "1", "b": "2"}


def test_what_arrived_whole_passes_in_any_order() -> None:
    verify(PROMISED, Received([("b", "2"), ("a", "1")]))


@pytest.mark.parametrize(
    ("received", "message"),
    [
        (Received([("a", "1")]), "tensor 'b' did not arrive"),
        (Received(), r"tensor 'a' did not arrive \(and 1 more\)"),
        (Received([("a", "1"), ("b", "2"), ("c", "3")]), "'c' arrived but is not in the manifest"),
        (Received([("a", "1"), ("b", "3")]), "'b' changed on the way: digest 3, in the manifest 2"),
        (Received([("a", "1"), ("b", "2")], unloaded=["w"]), "parameter 'w' was not loaded"),
        (Received([("a", "1"), ("b", "2")], stale=["layers.1"]), "layer 'layers.1' kept its old weights"),
    ],
)
def test_a_fault_is_named(received: Received, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        verify(PROMISED, received)
