"""What crosses between a worker and the process of an environment: JSON, with errors that keep their meaning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from agentrl import errors
from agentrl.endpoint import Answer, Ask
from agentrl.env import AuthorDeadlineError, Episode, Start, StepResult, Task
from agentrl.env.messages import checked_messages
from agentrl.errors import AgentRLError, Fault, as_text
from agentrl.plugins.tracebacks import describe_error, traced
from agentrl.roles import Casting, Player, RoleLimits, RoleReply
from agentrl.serving import RequestError
from agentrl.types import Completion, Message, RoleUse, Signal, StopReason

PROTOCOL = 4
"""Version of what is sent; both sides must have the same."""
T = TypeVar("T")
KNOWN: dict[str, type[AgentRLError]] = {
    kind.__name__: kind
    for kind in (
        AuthorDeadlineError, errors.ConfigError, errors.DataError, errors.DeadlineError, errors.EngineDiedError,
        errors.EngineError, errors.EngineRefusedError,
        errors.EnvError, errors.RoleError, errors.VerifierError, errors.WorkerLostError,
    )
}  # fmt: skip
"""Errors that are the same on both sides."""


class ProtocolError(AgentRLError):
    """The other side sent something that is not of this protocol."""


class RemoteError(AgentRLError):
    """An error of the other side that has no counterpart here; the message begins with its name."""

    def __init__(self, description: str, fault: Fault = "program") -> None:
        super().__init__(description)
        self.fault = fault


class RemoteTracebackError(Exception):
    """The traceback of the other side, as the cause of the error here."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


@dataclass(frozen=True, slots=True)
class EnvFacts:
    """What a worker knows of an environment before its first episode."""

    name: str
    is_agent: bool
    max_turns: int
    has_group_rewards: bool
    roles: tuple[str, ...] = ()
    digest: str = ""
    """Hash of its source and its keys, if it runs elsewhere."""


# --------------------------------------------------------------------------------------------------------------
# Values.


def signals_of(value: Any) -> tuple[Signal, ...]:
    """Return signals that were sent."""
    return converted(value, tuple[Signal, ...])


def start_of(value: Any) -> Start:
    """Return the start of an episode that was sent."""
    return read(lambda: Start(_messages(value["messages"]), tuple(value["tools"])))


def step_of(value: Any) -> StepResult:
    """Return the result of a turn that was sent."""
    return read(lambda: StepResult(_messages(value["messages"]), bool(value["done"]), signals_of(value["signals"])))


def ask_of(value: Any) -> Ask:
    """Return the call of an agent that was sent."""
    return read(lambda: Ask(**_with_tuples(value, "messages", "tools", "stop", "ids")))


def answer_of(value: Any) -> Answer:
    """Return the answer to an agent that was sent."""
    return read(lambda: Answer(**_with_tuples(value, "ids", "logprobs")))


def _with_tuples(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: tuple(item) if key in names else item for key, item in value.items()}


def limits_of(casting: Casting) -> dict[str, Any]:
    """Return what the other side needs of a role that a model of this side plays."""
    return {"max_calls": casting.limits.max_calls, "retries": casting.limits.retries, "timeout_s": casting.timeout_s}


def casting_of(player: Player, value: Any) -> Casting:
    """Return a role that a model of the other side plays, with its limits as they were sent."""
    return read(lambda: Casting(player, RoleLimits(value["max_calls"], value["retries"]), value["timeout_s"]))


def reply_of(value: Any) -> RoleReply:
    """Return the reply of a role that was sent."""
    return read(lambda: RoleReply(**value))


def uses_of(value: Any) -> dict[str, RoleUse]:
    """Return what was asked of roles, as it was sent."""
    return converted(value, dict[str, RoleUse])


def completion_of(value: Any) -> Completion:
    """Return a completion that was sent."""
    return converted(value, Completion)


def episode_of(value: Any, task: Task) -> Episode:
    """Return a finished episode of `task` that was sent."""
    signals, reason = signals_of(value["signals"]), StopReason(value["stop_reason"])
    return read(lambda: Episode(task, value["member"], tuple(value["messages"]), signals, reason))


def converted(value: Any, kind: type[T]) -> T:
    """Return a value as `kind`. Raises ProtocolError."""
    return read(lambda: msgspec.convert(value, kind))


def read(reader: Callable[[], T]) -> T:
    """Return what a reader makes of a value that was sent. Raises ProtocolError if it is not what it should be."""
    try:
        return reader()
    except (
        msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError, RecursionError, errors.EnvError,
    ) as error:  # fmt: skip
        raise ProtocolError(f"the other side sent something unexpected: {type(error).__name__}: {error}") from error


def _messages(value: Sequence[Any]) -> tuple[Message, ...]:
    return tuple(checked_messages(value, "the other side"))


# --------------------------------------------------------------------------------------------------------------
# Errors.


def as_error(error: Exception) -> dict[str, Any]:
    """Return an error as data."""
    if isinstance(error, RequestError):
        return {"request": [int(error.status), error.kind, str(error)]}
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in KNOWN), "")
    is_ours, message = isinstance(error, AgentRLError), as_text(error, str)
    text = f"{type(error).__name__}: {message}" if is_ours else describe_error(error)
    fault = getattr(error, "fault", "program")
    return {
        "kind": kind if is_ours else "",
        "message": message,
        "text": text,
        "fault": fault,
        "trace": traced(error),
    }


def error_of(value: Any) -> Exception:
    """Return the error that was sent: of the same class if both sides know it."""
    if request := value.get("request"):
        status, kind, message = request
        return RequestError(HTTPStatus(status), str(kind), str(message))
    known = KNOWN.get(value["kind"])
    fault: Fault = "infra" if value["fault"] == "infra" else "program"
    error = known(value["message"]) if known and known.fault == fault else RemoteError(value["text"], fault)
    error.__cause__ = RemoteTracebackError(value["trace"])
    return error
