"""Orders to an interpreter inside a sandbox, and the frames of its answers."""

import asyncio
import binascii
import json
import marshal
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, Protocol

from agentrl_sandbox import ExecResult, Limit, Limits

from agentrl_code.payload import cell
from agentrl_code.values import MOST_BYTES, MOST_WEIGHT, WEIGHT, UnreadableError, weight

_LENGTH = 8
_NONCE_BYTES = 16
_ORDER_WALL_S, _ORDER_CPU_S = 0.02, 0.001
"""Overhead of an order on a busy machine, which is not charged to the code that runs in it."""
MANY_BYTES = 1 << 18
"""Size from which an answer is parsed in a thread, because that takes long."""


class Session(Protocol):
    """The part of a sandbox that an interpreter uses."""

    async def run(self, source: str, limits: Limits) -> ExecResult:
        """Run source in the sandbox's one stateful interpreter."""


@dataclass(frozen=True, slots=True)
class Response:
    """The frames of one order and its result."""

    frames: tuple[Any, ...]
    ending: ExecResult


class Interpreter:
    """The `candidate` or the `judge` in its own sandbox."""

    def __init__(self, side: Literal["candidate", "judge"], sandbox: Session, limits: Limits) -> None:
        self._side, self._sandbox, self._limits = side, sandbox, limits
        self._preamble = cell(side)
        self._over: Response | None = None

    async def order(self, *calls: tuple[str, Any]) -> Response:
        """Call functions of that side with one argument each: a string, or a value that `marshal` supports.

        Raises UnreadableError for invalid frames and SandboxError if the sandbox fails.
        """
        if self._over:
            return self._over
        nonce = secrets.token_hex(_NONCE_BYTES).encode()
        lines = [f"{self._side}.{name}({nonce!r}, {_literal(argument)})\n" for name, argument in calls]
        source, self._preamble = self._preamble + "".join(lines), ""
        ending = await self._sandbox.run(source, self._limits)
        self._spend(ending)
        is_much = len(ending.stdout) > MANY_BYTES
        frames = await asyncio.to_thread(_frames, ending.stdout, nonce) if is_much else _frames(ending.stdout, nonce)
        return Response(frames, ending)

    def _spend(self, ending: ExecResult) -> None:
        """Subtract the time of an order, except its overhead, from the limits of all orders together."""
        wall_s = self._limits.wall_s - max(0.0, ending.wall_s - _ORDER_WALL_S)
        cpu_s = self._limits.cpu_s - max(0.0, ending.cpu_s - _ORDER_CPU_S)
        if min(wall_s, cpu_s) > 0:
            self._limits = replace(self._limits, wall_s=wall_s, cpu_s=cpu_s)
        else:
            hit = Limit.CPU if cpu_s <= 0 else Limit.TIME
            self._over = Response((), replace(ending, stdout=b"", hits=frozenset({hit})))


def _literal(argument: Any) -> str:
    """Return the argument as an expression; long ones in base64, since `ascii` uses up to four characters per byte."""
    if isinstance(argument, str):
        return ascii(argument)
    packed = marshal.dumps(argument, 2)
    if len(packed) < MANY_BYTES:
        return ascii(packed)
    return f"__import__('binascii').a2b_base64({binascii.b2a_base64(packed, newline=False)!r})"


def _frames(output: bytes, nonce: bytes) -> tuple[Any, ...]:
    """Return the payloads of the complete frames with this nonce; output between frames is ignored."""
    payloads = list(_payloads(output, nonce))
    if len(output) * WEIGHT > MOST_WEIGHT and any(total > MOST_WEIGHT for total in accumulate(map(weight, payloads))):
        raise UnreadableError("too many values")
    return tuple(map(_parsed, payloads))


def _payloads(output: bytes, nonce: bytes) -> Iterator[bytes]:
    at = output.find(nonce)
    while at >= 0:
        start = at + len(nonce) + _LENGTH
        length = _number(output[at + len(nonce) : start])
        if start + length > len(output):
            return
        if length > MOST_BYTES:
            raise UnreadableError(f"a frame of {length} bytes")
        yield output[start : start + length]
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
        raise UnreadableError(f"a frame that is not JSON: {problem}") from None
