"""The one place where an exception becomes data: a failed episode is a Trajectory with a reason, not a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum

from agentrl.errors import AgentRLError, EngineDiedError, EngineError, EnvError, VerifierError
from agentrl.hosting.wire import RemoteError
from agentrl.plugins.tracebacks import describe_error, traced
from agentrl.types import Signal, StopReason, Trajectory


class Phase(StrEnum):
    """Phase of an episode. If an exception does not state its fault, the phase decides."""

    SETUP = "setup"
    RENDER = "render"
    GENERATE = "generate"
    STEP = "step"
    SCORE = "score"
    TEARDOWN = "teardown"


@dataclass(frozen=True, slots=True)
class Ending:
    """Why an episode ended; `error` says what went wrong and where, if anything did."""

    stop_reason: StopReason
    error: str = ""
    traceback: str = ""


@dataclass(slots=True)
class Guarded:
    """What `boundary` caught, if anything."""

    ending: Ending | None = None


@contextmanager
def boundary(phase: Callable[[], Phase]) -> Iterator[Guarded]:
    """Run the body; an exception becomes an `ending`, classified with `phase()` at that moment.

    A cancellation of the running task, KeyboardInterrupt and SystemExit pass through. A CancelledError without such a
    cancellation (a library cancelled itself) is a failure like any other.
    """
    caught = Guarded()
    try:
        yield caught
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        caught.ending = Ending(StopReason.CANCELLED, f"{phase()}: cancelled from inside")
    except Exception as error:  # noqa: BLE001 (this is the one place)
        caught.ending = Ending(classify(error, phase()), f"{phase()}: {described(error)}", traced(error))


def classify(error: Exception, phase: Phase) -> StopReason:
    """Return the StopReason of an exception: decided by its `fault` if it has one, else by the phase."""
    if isinstance(error, EngineError) and not isinstance(error, EngineDiedError) and phase is Phase.GENERATE:
        return StopReason.MODEL_ERROR
    if getattr(error, "fault", "program") == "infra":
        return StopReason.INFRA_ERROR
    if isinstance(error, VerifierError) or phase is Phase.SCORE:
        return StopReason.VERIFIER_ERROR
    is_models = phase in (Phase.RENDER, Phase.GENERATE) and not isinstance(error, EnvError)
    return StopReason.MODEL_ERROR if is_models else StopReason.ENV_ERROR


def undecided(signals: Iterable[Signal]) -> Ending | None:
    """VERIFIER_ERROR if a signal with a weight has no value; None if all have one."""
    for signal in signals:
        if not signal.valid and signal.weight != 0:
            error = f"{Phase.SCORE}: {signal.name}: {signal.reason}"
            return Ending(StopReason.VERIFIER_ERROR, error, signal.traceback)
    return None


def with_signals(trajectory: Trajectory, signals: tuple[Signal, ...]) -> Trajectory:
    """Return the trajectory with more signals; it ends with VERIFIER_ERROR if one with a weight has no value."""
    scored = replace(trajectory, signals=(*trajectory.signals, *signals))
    ending = undecided(signals)
    return ended(scored, ending) if ending else scored


def ended(trajectory: Trajectory, ending: Ending) -> Trajectory:
    """Return the trajectory with another ending."""
    return replace(trajectory, stop_reason=ending.stop_reason, error=ending.error, traceback=ending.traceback)


def described(error: Exception) -> str:
    """Type and message of an error and, if it is not agentrl's own, its file and line."""
    if isinstance(error, RemoteError):
        return str(error)  # which has them from the process of the environment
    return f"{type(error).__name__}: {error}" if isinstance(error, AgentRLError) else describe_error(error)
