"""Trajectory store: append-only, compressed; what was appended survives a kill at any moment."""

from __future__ import annotations

import dataclasses
import mmap
import os
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zstandard

from agentrl.errors import RunError
from agentrl.records.jsonl import append_whole, fsync
from agentrl.types import (
    AttemptId,
    Exchange,
    Message,
    RoleUse,
    SampleId,
    Segment,
    Signal,
    StopReason,
    Timings,
    TokenSequence,
    Trajectory,
    Version,
    VersionSpan,
)
from agentrl.types.plain import plain

# A record: magic, length of the body, CRC-32 of all that follows, group, member, attempt, body (zstd of `encode`).
MAGIC = b"\xa7RL\x01"
HEAD = struct.Struct("<4sIIqII")
AFTER_CRC = 12
SHARD_BYTES = 256 << 20


# --------------------------------------------------------------------------------------------------------------
# One trajectory as bytes: on the wire between processes and inside the store.


class _Segment(msgspec.Struct, array_like=True, gc=False):
    """Token ids as 32-bit integers; logprobs as 32-bit floats where that is exact, else 64-bit; little endian."""

    ids: bytes
    is_action: bool
    float_type: str
    logprobs: bytes
    versions: list[tuple[int, int, int, int]]
    turn: int
    agent: str = ""


class _Record(msgspec.Struct, array_like=True):
    sample: tuple[int, int]
    attempt: int
    split: str
    task_index: int
    task_id: str
    sequences: list[list[_Segment]]
    messages: list[Any]
    signals: list[Signal]
    stop_reason: StopReason
    temperature: float
    turns: int
    timings: Timings
    error: str
    traceback: str = ""
    success: Signal | None = None
    env: str = ""
    roles: dict[str, RoleUse] = {}
    exchanges: list[Exchange] = []


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


def encode(trajectory: Trajectory) -> bytes:
    """Encode a trajectory in msgpack; `decode` restores it exactly, except for values that are not plain data.

    A tool call of a model may contain 10**400, a lone surrogate or [[[[...]]]]: such values are stored as text.
    """
    t = trajectory
    where = (t.sample, t.attempt, t.split, t.task_index, plain(t.task_id))
    sequences = [[_pack(segment) for segment in sequence.segments] for sequence in t.sequences]
    signals = [_clean(signal) for signal in t.signals]
    rest = (t.stop_reason, t.temperature, t.turns, t.timings, plain(t.error))
    more = plain(t.traceback), t.success and _clean(t.success), plain(t.env), t.roles, list(t.exchanges)
    return _encoder.encode(_Record(*where, sequences, plain(t.messages), signals, *rest, *more))


def decode(data: bytes) -> Trajectory:
    """Restore a trajectory from the bytes of `encode`. Raises msgspec.DecodeError for other bytes."""
    r = _decoder.decode(data)
    sequences = tuple(TokenSequence(tuple(map(_unpack, segments))) for segments in r.sequences)
    messages: tuple[Message, ...] = tuple(r.messages)
    where = (SampleId(*r.sample), r.attempt, r.split, r.task_index, r.task_id)
    rest = (r.stop_reason, r.temperature, r.turns, r.timings, r.error)
    more = r.traceback, r.success, r.env, r.roles, tuple(r.exchanges)
    return Trajectory(*where, sequences, messages, tuple(r.signals), *rest, *more)


def _pack(s: Segment) -> _Segment:
    logprobs = array("f", s.logprobs)
    if tuple(logprobs) != s.logprobs:
        logprobs = array("d", s.logprobs)
    versions = [(*span.version, span.start, span.end) for span in s.versions]
    ids, floats = array("i", s.ids).tobytes(), logprobs.tobytes()
    return _Segment(ids, s.is_action, logprobs.typecode, floats, versions, s.turn, plain(s.agent))


def _unpack(s: _Segment) -> Segment:
    versions = tuple(VersionSpan(Version(i, n), start, end) for i, n, start, end in s.versions)
    ids, logprobs = tuple(array("i", s.ids)), tuple(array(s.float_type, s.logprobs))
    return Segment(ids, s.is_action, logprobs, versions, s.turn, s.agent)


def _clean(signal: Signal) -> Signal:
    fields = ("name", "reason", "evidence", "verifier", "agent")
    return dataclasses.replace(signal, **{field: plain(getattr(signal, field)) for field in fields})


# --------------------------------------------------------------------------------------------------------------
# Many trajectories in a folder.


class Ref(NamedTuple):
    """Position of a record: its shard, and the offset of its head in it."""

    shard: Path
    offset: int


@dataclass(slots=True)
class TrajectoryStore:
    """The trajectories in `folder`. Reading works while another process appends.

    Each writer creates its own shard at its first append, so it never touches the torn end of an earlier one. Readers
    skip whatever does not match its checksum. The index is built by scanning.
    """

    folder: Path
    shard_bytes: int = SHARD_BYTES
    _index: dict[AttemptId, Ref] = field(init=False, repr=False)
    _shard: Path | None = field(init=False, default=None)
    _file: int = field(init=False, repr=False, default=-1)
    _end: int = field(init=False, repr=False, default=0)
    _compressor: zstandard.ZstdCompressor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._index = {attempt: ref for ref, attempt, _ in records_in(self.folder)}

    def append(self, trajectories: Iterable[Trajectory]) -> None:
        """Store trajectories; once it returns, they survive the death of this process (after `sync`: of the machine).

        Raises RunError if the disk is full, or for an attempt that is stored already.
        """
        batch = list(trajectories)
        attempts = [(t.sample, t.attempt) for t in batch]
        self._refuse_doubles(attempts)
        records = [
            frame(attempt, self._compressor.compress(encode(t))) for attempt, t in zip(attempts, batch, strict=True)
        ]
        shard = self._open_shard()
        offset = self._end
        append_whole(self._file, b"".join(records), self.folder)
        for attempt, record in zip(attempts, records, strict=True):
            self._index[attempt] = Ref(shard, offset)
            offset += len(record)
        self._end = offset

    def sync(self) -> None:
        """Wait until everything appended is on the disk itself: for a checkpoint, not for every sample."""
        if self._file >= 0:
            fsync(self._file, self.folder)

    def read(self, sample: SampleId, attempt: int | None = None) -> Trajectory:
        """Return one attempt at a sample, by default the newest. Raises RunError if there is none."""
        known = [number for stored, number in self._index if stored == sample] if attempt is None else [attempt]
        ref = self._index.get((sample, max(known, default=-1)))
        if ref is None:
            raise RunError(
                f"{self.folder}: no trajectory of sample {sample}"
                + ("." if attempt is None else f", attempt {attempt}.")
            )
        with ref.shard.open("rb") as file:
            file.seek(ref.offset)
            length = HEAD.unpack(file.read(HEAD.size))[1]
            return decode(zstandard.decompress(file.read(length)))

    def ids(self) -> list[AttemptId]:
        """Return every attempt on disk in the order of storing, read from the files."""
        return [attempt for _, attempt, _ in records_in(self.folder)]

    def close(self) -> None:
        """Sync and close the shard. Idempotent."""
        if self._file >= 0:
            file, self._file = self._file, -1
            try:
                fsync(file, self.folder)
            finally:
                os.close(file)

    # --- inside ---------------------------------------------------------------------------------------------

    def _refuse_doubles(self, attempts: list[AttemptId]) -> None:
        if len(set(attempts)) < len(attempts) or any(attempt in self._index for attempt in attempts):
            known = [f"{sample}, attempt {n}" for sample, n in attempts if (sample, n) in self._index]
            raise RunError(f"{self.folder}: stored already: {'; '.join(known[:3]) or 'twice in one call'}.")

    def _open_shard(self) -> Path:
        if self._shard is not None and self._file >= 0 and self._end < self.shard_bytes:
            return self._shard
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        newest = max((int(path.stem) for path in self.folder.glob("*.bin")), default=-1)
        self._shard = self.folder / f"{newest + 1:04d}.bin"
        self._file, self._end = os.open(self._shard, os.O_APPEND | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), 0
        return self._shard


def scan(folder: Path) -> Iterator[Trajectory]:
    """Yield every trajectory of the store in `folder`, one by one in the order of storing.

    Another process may append.
    """
    return (decode(zstandard.decompress(body)) for _, _, body in records_in(folder))


def records_in(folder: Path) -> Iterator[tuple[Ref, AttemptId, bytes]]:
    """Yield the whole records of every shard in `folder`."""
    for shard in sorted(folder.glob("*.bin")):
        yield from records_of(shard)


def frame(attempt: AttemptId, body: bytes) -> bytes:
    """Return the bytes of a record in a shard."""
    (group, member), number = attempt
    head = HEAD.pack(MAGIC, len(body), 0, group, member, number)
    crc = zlib.crc32(body, zlib.crc32(head[AFTER_CRC:]))
    return HEAD.pack(MAGIC, len(body), crc, group, member, number) + body


def unreadable(folder: Path) -> dict[Path, int]:
    """Return the shards in `folder` with damaged or torn records, with the number of those of which bytes are left."""
    found = {shard: sum(body is None for _, _, body in _records(shard)) for shard in sorted(folder.glob("*.bin"))}
    return {shard: count for shard, count in found.items() if count}


def records_of(shard: Path) -> Iterator[tuple[Ref, AttemptId, bytes]]:
    """Yield the whole records of a shard; damaged and torn ones are skipped."""
    return ((ref, attempt, body) for ref, attempt, body in _records(shard) if body is not None)


def _records(shard: Path) -> Iterator[tuple[Ref, AttemptId, bytes | None]]:
    """Yield the records of a shard, the body of a damaged or torn one as None."""
    if shard.stat().st_size == 0:
        return
    with shard.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        offset = after = 0  # the search, and the end of the last whole record
        lost = (SampleId(0, 0), 0), None
        while (offset := data.find(MAGIC, offset)) >= 0 and offset <= len(data) - HEAD.size:
            _, length, crc, group, member, number = HEAD.unpack_from(data, offset)
            end = offset + HEAD.size + length
            rest = data[offset + AFTER_CRC : end]
            if end <= len(data) and zlib.crc32(rest) == crc:
                if offset > after and data.find(MAGIC, after, offset) < 0:
                    yield Ref(shard, after), *lost
                yield Ref(shard, offset), (SampleId(group, member), number), rest[HEAD.size - AFTER_CRC :]
                offset = after = end
            else:
                yield Ref(shard, offset), *lost
                offset += 1
        if after < len(data) and data.find(MAGIC, after, max(0, len(data) - HEAD.size + len(MAGIC))) < 0:
            yield Ref(shard, after), *lost
