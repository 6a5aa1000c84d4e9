"""An exception becomes the stop reason it deserves; what is no failure of the episode flies on."""

from __future__ import annotations

import asyncio

import pytest

from agentrl.errors import (
    AgentRLError,
    DeadlineError,
    EngineDiedError,
    EngineError,
    EngineRefusedError,
    EnvError,
    VerifierError,
)
from agentrl.rollout.boundary import Phase, boundary
from agentrl.types import StopReason
from tests.unit.rollout.cases import InfraError


@pytest.mark.parametrize(
    ("error", "phase", "expected"),
    [
        (KeyError("x"), Phase.SETUP, StopReason.ENV_ERROR),
        (EnvError("x"), Phase.STEP, StopReason.ENV_ERROR),
        (InfraError("x"), Phase.STEP, StopReason.INFRA_ERROR),
        (AgentRLError("x"), Phase.STEP, StopReason.INFRA_ERROR),
        (EngineError("a judge's"), Phase.STEP, StopReason.INFRA_ERROR),
        (KeyError("x"), Phase.SCORE, StopReason.VERIFIER_ERROR),
        (VerifierError("x"), Phase.STEP, StopReason.VERIFIER_ERROR),
        (InfraError("x"), Phase.SCORE, StopReason.INFRA_ERROR),
        (EngineError("x"), Phase.GENERATE, StopReason.MODEL_ERROR),
        (EngineRefusedError("x"), Phase.GENERATE, StopReason.MODEL_ERROR),
        (EngineDiedError("x"), Phase.GENERATE, StopReason.INFRA_ERROR),
        (DeadlineError("x"), Phase.GENERATE, StopReason.INFRA_ERROR),
        (ValueError("x"), Phase.GENERATE, StopReason.MODEL_ERROR),
        (ValueError("x"), Phase.RENDER, StopReason.MODEL_ERROR),
        (EnvError("an image"), Phase.RENDER, StopReason.ENV_ERROR),
    ],
    ids=lambda value: value.value if isinstance(value, Phase) else type(value).__name__,
)
def test_each_exception_has_its_reason(error: Exception, phase: Phase, expected: StopReason) -> None:
    with boundary(lambda: phase) as caught:
        raise error
    assert caught.ending is not None
    assert caught.ending.stop_reason is expected
    assert caught.ending.error.startswith(f"{phase}: {type(error).__name__}")


def test_it_says_where() -> None:
    with boundary(lambda: Phase.STEP) as caught:
        raise KeyError("lost")
    assert caught.ending is not None
    assert "'lost' (test_boundary.py:" in caught.ending.error


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_flies_on(error: type[BaseException]) -> None:
    with pytest.raises(error), boundary(lambda: Phase.STEP):
        raise error


async def test_a_cancelled_task_is_cancelled_and_a_stray_cancellation_is_an_ending() -> None:
    with boundary(lambda: Phase.STEP) as caught:
        raise asyncio.CancelledError
    assert caught.ending is not None
    assert caught.ending.stop_reason is StopReason.CANCELLED

    async def wait() -> None:
        with boundary(lambda: Phase.STEP):
            await asyncio.Event().wait()

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
