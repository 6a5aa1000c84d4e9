"""Every error agentrl raises on purpose. Each says what is wrong, where, and what to do.

AgentRLError
├── ConfigError            the user's input: configuration, data, model, env name
│   ├── UnknownNameError   an unknown name, with the nearest known one
│   └── DataError          a data file, with file and line
├── EnvError               an environment's own code raised (fault = "program")
│   └── VerifierError      its scoring raised
├── EngineError            sampling failed
│   ├── EngineDiedError    the process is gone; a restart may help
│   └── EngineRefusedError a call that this engine cannot serve
├── RoleError              a role (a judge, a simulated user) gave no usable reply
├── WeightsError           a publication did not arrive whole
├── AlgorithmError         an algorithm gave credit or a loss that cannot be used (fault = "program")
│   └── CreditError        its credit or its state, whatever the episodes are
├── LearnerError           a learner rank failed; names the rank
│   └── LearnerDiedError   its process is gone
├── WorkerLostError        the process that ran an episode is gone
├── DeadlineError          a wait timed out; states which and how long
└── RunError               the run cannot continue, or cannot be resumed
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

Fault = Literal["program", "infra"]


class AgentRLError(Exception):
    """The root of the tree; `fault` names the cause: the environment's program or the infrastructure."""

    fault: Fault = "infra"


class ConfigError(AgentRLError):
    """The user's input cannot be used; raised before anything heavy starts."""

    fault: Fault = "program"


class UnknownNameError(ConfigError):
    """An unknown name; the message has the nearest known one and the list."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        names = sorted(known)
        super().__init__(f"unknown {kind} {name!r}.{did_you_mean(str(name), names)}{' ' + hint if hint else ''}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[str]]:
        """Pickle as a ConfigError with the same message."""
        return ConfigError, (str(self),)


class DataError(ConfigError):
    """A data file that cannot be used; says which file and which line."""


class EnvError(AgentRLError):
    """An environment's own code raised."""

    fault: Fault = "program"


class VerifierError(EnvError):
    """An environment's scoring raised or could not decide."""


class EngineError(AgentRLError):
    """Sampling failed."""


class EngineDiedError(EngineError):
    """The engine process is gone; its requests are lost and may be sent again elsewhere."""


class EngineRefusedError(EngineError):
    """The engine cannot serve this call."""


class RoleError(AgentRLError):
    """A role gave no reply, or none that can be used."""


class WeightsError(AgentRLError):
    """A publication did not arrive whole, or the engine does not serve what was published."""


class AlgorithmError(AgentRLError):
    """An algorithm gave credit or a loss that cannot be used."""

    fault: Fault = "program"


class CreditError(AlgorithmError):
    """What `credit` leaves cannot be trained or saved: shapes, numbers, a return value, state."""


class LearnerError(AgentRLError):
    """A learner rank failed; the message names it."""


class LearnerDiedError(LearnerError):
    """The process of a learner rank, or of its scorers, is gone."""


class WorkerLostError(AgentRLError):
    """The process that ran an episode is gone: the attempt is lost and the sample is run again."""


class DeadlineError(AgentRLError):
    """A wait timed out; the message states what for and how long."""


class RunError(AgentRLError):
    """The run cannot continue, or cannot be resumed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean 'x'? Known: x, y.' with the nearest known name, or '' when nothing is known."""
    names = sorted(known)
    hint = nearest(name, names)
    return f"{hint} Known: {', '.join(names)}." if names else hint


def nearest(name: str, known: Iterable[str]) -> str:
    """' Did you mean 'x'?' with the nearest known name, or '' if none is near."""
    section, dot, key = name.rpartition(".")
    own = {each.removeprefix(section + dot): each for each in known}  # a section they share would make all of them near
    near = difflib.get_close_matches(key, own, n=1)
    return f" Did you mean {own[near[0]]!r}?" if near else ""


# --------------------------------------------------------------------------------------------------------------
# Calls into code that is not ours, where any error becomes data.


class ExitedError(Exception):
    """Wraps a BaseException such as SystemExit that somebody else's code `raised`."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(f"{type(raised).__name__}: {raised}")
        self.raised = raised
        self.__traceback__ = raised.__traceback__


@dataclass(frozen=True, slots=True)
class Caught:
    """Result of a guarded call: its `value`, or the `error` it raised."""

    value: Any = None
    error: Exception | None = None


def catch(function: Callable[..., Any], *args: Any) -> Caught:
    """Call `function(*args)` and catch whatever it raises, except cancellation and interrupts of the main thread."""
    try:
        return Caught(function(*args))
    except BaseException as error:  # noqa: BLE001 (one of the two places)
        return _caught(error)


def as_text(value: object, write: Callable[[Any], str] = repr) -> str:
    """Return `repr(value)` or another text of a value that is not ours; the name of its type if it has none."""
    written = catch(write, value)
    return f"<{type(value).__name__} without {write.__name__}>" if written.error else str(written.value)


async def acatch(awaitable: Awaitable[Any]) -> Caught:
    """Await and catch. Inside a task: a SystemExit that left the task would stop the whole event loop."""
    try:
        return Caught(await awaitable)
    except BaseException as error:  # noqa: BLE001 (one of the two places)
        return _caught(error)


def _caught(error: BaseException) -> Caught:
    from asyncio import CancelledError  # slow to import, and `agentrl --help` needs none of it

    if isinstance(error, CancelledError | GeneratorExit) or (isinstance(error, KeyboardInterrupt) and _is_main()):
        raise error
    if (own := error.__traceback__) and own.tb_next:  # the first frame is that of `catch`; the next is the author's
        error.__traceback__ = own.tb_next
    return Caught(error=error if isinstance(error, Exception) else ExitedError(error))


def _is_main() -> bool:
    """Return whether this is the main thread, the only one that Python interrupts for a signal."""
    return threading.current_thread() is threading.main_thread()


def catch_exit(function: Callable[..., Any], *args: Any) -> Caught:
    """Call and catch as `catch` does, `os._exit` included, which would end the command without a message.

    Outside the main thread `os._exit` is not caught, because all threads share it. Forked processes may exit freely.
    """
    if not _is_main():
        return catch(function, *args)
    real, ours = os._exit, os.getpid()

    def exits(status: int) -> NoReturn:
        if os.getpid() != ours:
            real(status)
        raise SystemExit(status)

    os._exit = exits
    try:
        return catch(function, *args)
    finally:
        os._exit = real
