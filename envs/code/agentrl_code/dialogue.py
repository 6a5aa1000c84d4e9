"""One order to an interpreter inside a sandbox, and the frames it answered with."""

import json
import marshal
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from agentrl_sandbox import ExecResult, Limits

from agentrl_code.payload import cell
from agentrl_code.values import UnreadableError

_LENGTH = 8
_NONCE_BYTES = 16
_LEAST_S = 0.01


class Session(Protocol):
    """What an interpreter needs of its sandbox."""

    async def run(self, source: str, limits: Limits) -> ExecResult:
        """Run source in the sandbox's one stateful interpreter."""


@dataclass(frozen=True, slots=True)
class Said:
    """The frames of one order, and how the order ended."""

    frames: tuple[Any, ...]
    ending: ExecResult


class Interpreter:
    """The `candidate` or the `judge`, in a sandbox of its own."""

    def __init__(self, side: Literal["candidate", "judge"], sandbox: Session, limits: Limits) -> None:
        self._side, self._sandbox, self._limits = side, sandbox, limits
        self._preamble = cell(side)

    async def order(self, *calls: tuple[str, Any]) -> Said:
        """Call functions of that side with one argument each: a text, or what `marshal` carries, as bytes.

        Raises UnreadableError for frames that nobody of ours writes, SandboxError when the sandbox fails.
        """
        nonce = secrets.token_hex(_NONCE_BYTES).encode()
        lines = [f"{self._side}.{name}({nonce!r}, {_literal(argument)})\n" for name, argument in calls]
        source, self._preamble = self._preamble + "".join(lines), ""
        ending = await self._sandbox.run(source, self._limits)
        self._spend(ending)
        return Said(tuple(_frames(ending.stdout, nonce)), ending)

    def _spend(self, ending: ExecResult) -> None:
        """The limits hold for all orders together."""
        wall_s = max(_LEAST_S, self._limits.wall_s - ending.wall_s)
        self._limits = replace(self._limits, wall_s=wall_s, cpu_s=max(_LEAST_S, self._limits.cpu_s - ending.cpu_s))


def _literal(argument: Any) -> str:
    return ascii(argument if isinstance(argument, str) else marshal.dumps(argument, 2))


def _frames(output: bytes, nonce: bytes) -> Iterator[Any]:
    """The payload of each whole frame with this nonce; anything around them is nobody's."""
    at = output.find(nonce)
    while at >= 0:
        start = at + len(nonce) + _LENGTH
        length = _number(output[at + len(nonce) : start])
        if start + length > len(output):
            return
        yield _parsed(output[start : start + length])
        at = output.find(nonce, start + length)


def _number(digits: bytes) -> int:
    try:
        return int(digits, 16)
    except ValueError:
        raise UnreadableError("a frame without a length") from None


def _parsed(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as problem:
        raise UnreadableError(f"a frame that is no JSON: {problem}") from None
