"""What clients of OpenEnv send and receive, as its versions 0.2 to 0.10 do."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from agentrl.serving import body
from agentrl.types import TRAIN

T = TypeVar("T")


class Code(StrEnum):
    """Codes of errors."""

    INVALID_JSON = "INVALID_JSON"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    EXECUTION_ERROR = "EXECUTION_ERROR"
    CAPACITY_REACHED = "CAPACITY_REACHED"
    SESSION_ERROR = "SESSION_ERROR"


class WireError(Exception):
    """An error that a client receives; `details` are further fields of it."""

    def __init__(self, code: Code, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code, self.details = code, details

    @property
    def message(self) -> dict[str, Any]:
        """The error as a message of the WebSocket."""
        return {"type": "error", "data": {"message": str(self), "code": self.code, **self.details}}


class ResetRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Begin an episode: of the task at `index`, or of one that `seed` chooses."""

    seed: Annotated[int, msgspec.Meta(ge=0)] | None = None
    episode_id: Annotated[str, msgspec.Meta(max_length=255)] | None = None
    split: str = TRAIN
    index: Annotated[int, msgspec.Meta(ge=0)] | None = None
    id: str | None = None


class Action(msgspec.Struct, forbid_unknown_fields=True):
    """A turn of the assistant: a message, or a call of a tool, which a message may accompany."""

    type: Literal["message", "call_tool", "list_tools"] | None = None
    message: str | None = None
    tool_name: str | None = None
    arguments: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    @property
    def is_call(self) -> bool:
        """True if the action calls a tool."""
        return self.type == "call_tool" or (self.type is None and self.tool_name is not None)


class StepRequest(ResetRequest):
    """Body of `POST /step`: an action, and the episode that begins with it."""

    action: dict[str, Any] = {}
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    request_id: str | None = None


class TasksRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of the Task API."""

    split: str
    index: int = -1
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """Answer to `reset` and `step`. The reward is None if nothing was scored."""

    content: dict[str, Any]
    reward: float | None = None
    is_done: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, Any]:
        """The observation as clients read it."""
        return {
            "observation": self.content, "reward": self.reward, "done": self.is_done, "metadata": self.metadata
        }  # fmt: skip


def decoded(text: str | bytes) -> dict[str, Any]:
    """Return the JSON object that a client sent. Raises WireError."""
    try:
        value: Any = body.decoded(text.encode() if isinstance(text, str) else text, object)
    except (ValueError, RecursionError) as error:
        raise WireError(Code.INVALID_JSON, f"this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise WireError(Code.VALIDATION_ERROR, "this is not a JSON object", errors=[])
    return value


def read(kind: type[T], value: Any) -> T:
    """Return `value` as a `kind`. Raises WireError that says what is wrong and where."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise invalid(str(error)) from None


def invalid(reason: str) -> WireError:
    """Return the error for what a client should have sent otherwise."""
    return WireError(Code.VALIDATION_ERROR, reason, errors=[{"type": "value_error", "loc": [], "msg": reason}])
