"""A program that could not be started is the infrastructure's failure, never a result."""

from __future__ import annotations

import pytest
from agentrl_sandbox import LostError
from agentrl_sandbox.answer import Answer
from agentrl_sandbox.inside import wire
from agentrl_sandbox.types import Limit


def last(code: int, hits: str, has_begun: int) -> bytes:
    return wire.pack(code, hits, 1000, 1000, 1, 0, has_begun)


def test_a_start_that_failed_without_a_limit_is_an_error() -> None:
    answer = Answer(100, None)
    answer.take(wire.ERR, b"PermissionError")
    with pytest.raises(LostError, match="not started: PermissionError") as lost:
        answer.take(wire.END, last(125, "", 0))
    assert lost.value.fault == "infra"


def test_a_start_that_failed_at_a_limit_is_a_result() -> None:
    result = Answer(100, None).take(wire.END, last(-9, "memory", 0))
    assert result is not None
    assert result.hits == {Limit.MEMORY}


@pytest.mark.parametrize("payload", [b"", b"\0\0\0\5x", wire.pack("x", "", 1, 1, 1, 0, 1), last(0, "speed", 1)])
def test_a_result_that_cannot_be_read_is_an_error(payload: bytes) -> None:
    with pytest.raises(LostError):
        Answer(100, None).take(wire.END, payload)


def test_more_output_than_the_limit_lets_through_is_an_error() -> None:
    with pytest.raises(LostError, match="more than"):
        Answer(3, None).take(wire.OUT, b"four")


def test_a_frame_that_no_warden_sends_is_an_error() -> None:
    with pytest.raises(LostError, match="kind"):
        Answer(3, None).take(b"X", b"")
