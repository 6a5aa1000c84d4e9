"""The answer of a sandbox to one order: output as it arrives, then the result."""

from __future__ import annotations

import time

from agentrl_sandbox.errors import LostError
from agentrl_sandbox.inside import wire
from agentrl_sandbox.types import ExecResult, Limit, OnOutput, Stream

KILLED = -9
STREAMS = {wire.OUT: Stream.STDOUT, wire.ERR: Stream.STDERR}
FRAMES = {stream: kind for kind, stream in STREAMS.items()}


class Answer:
    """Collector of the output of one run. Raises LostError for frames that no warden would send."""

    def __init__(self, max_bytes: int, on_output: OnOutput | None) -> None:
        self._left, self._on_output = max_bytes, on_output
        self._output = {stream: bytearray() for stream in Stream}
        self._started = time.monotonic()

    def take(self, kind: bytes, payload: bytes) -> ExecResult | None:
        """Process one frame of the answer; return the result if it was the last."""
        if kind == wire.END:
            return self.result(payload)
        if kind not in STREAMS:
            raise LostError(f"it answered with a frame of kind {kind!r}")
        self.add(STREAMS[kind], payload)
        return None

    def add(self, stream: Stream, data: bytes) -> None:
        """Append a piece of output."""
        self._left -= len(data)
        if self._left < 0:
            raise LostError("it sent more than the output limit allows")
        self._output[stream] += data
        if self._on_output:
            self._on_output(stream, data)

    def result(self, payload: bytes) -> ExecResult:
        """Parse the result in the last frame."""
        try:
            code, names, wall_us, cpu_us, peak_bytes, is_lost, has_begun = wire.unpack(payload)
            hits = frozenset(Limit(name) for name in names.decode().split(",") if name)
            if has_begun != b"1" and not hits:
                raise LostError(f"the program was not started: {self._output[Stream.STDERR].decode(errors='replace')}")
            return self._result(
                exit_code=int(code),
                hits=hits,
                wall_s=int(wall_us) / 1e6,
                cpu_s=int(cpu_us) / 1e6,
                peak_memory_bytes=int(peak_bytes),
                is_state_lost=is_lost == b"1",
            )
        except ValueError as error:
            raise LostError(f"its result cannot be read: {error}") from error

    def cut_off(self, limit: Limit) -> ExecResult:
        """Return the result of a run that broke its sandbox when it hit a limit."""
        wall_s = time.monotonic() - self._started
        return self._result(KILLED, frozenset({limit}), wall_s, 0.0, 0, is_state_lost=True)

    def _result(
        self,
        exit_code: int,
        hits: frozenset[Limit],
        wall_s: float,
        cpu_s: float,
        peak_memory_bytes: int,
        is_state_lost: bool,
    ) -> ExecResult:
        stdout, stderr = (bytes(self._output[stream]) for stream in (Stream.STDOUT, Stream.STDERR))
        return ExecResult(exit_code, stdout, stderr, hits, wall_s, cpu_s, peak_memory_bytes, is_state_lost)
