"""The trajectory store: exact, append-only, whole after a kill, honest about a full disk."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.errors import RunError
from agentrl.records.store import TrajectoryStore, decode, encode, records_in, records_of, scan, unreadable
from agentrl.types import (
    Message,
    SampleId,
    Segment,
    Signal,
    StopReason,
    TokenSequence,
    Trajectory,
    Version,
    VersionSpan,
)
from tests.unit.records.synthetic import trajectory

TEXT = st.text(max_size=30)
FLOATS = st.floats(allow_nan=False)
TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=8).map(tuple)


@st.composite
def actions(draw: st.DrawFn) -> Segment:
    ids = draw(TOKENS)
    is_float32 = draw(st.booleans())
    values = st.floats(width=32, allow_nan=False) if is_float32 else FLOATS
    logprobs = tuple(draw(st.lists(values, min_size=len(ids), max_size=len(ids))))
    version = Version(draw(st.integers(0, 3)), draw(st.integers(0, 10**6)))
    return Segment(
        ids,
        True,
        logprobs,
        (VersionSpan(version, 0, len(ids)),),
        draw(st.integers(0, 9)),
        draw(st.sampled_from(["", "white"])),
    )


SEGMENTS = st.one_of(actions(), st.builds(Segment, TOKENS, st.just(False)))
SEQUENCES = st.lists(SEGMENTS, max_size=4).map(lambda segments: TokenSequence(tuple(segments)))
SIGNALS = st.builds(
    Signal, TEXT, st.none() | FLOATS, FLOATS, evidence=st.none() | TEXT | st.dictionaries(TEXT, st.integers(-5, 5)),
    valid=st.booleans(), reason=TEXT, turn=st.none() | st.integers(0, 5),
)  # fmt: skip
MESSAGES = st.builds(lambda text: Message(role="assistant", content=text), TEXT)
TRAJECTORIES = st.builds(
    Trajectory, st.builds(SampleId, st.integers(0, 2**40), st.integers(0, 2**20)), st.integers(0, 9), st.just("train"),
    st.integers(0, 2**40), TEXT, st.lists(SEQUENCES, max_size=3).map(tuple), st.lists(MESSAGES, max_size=3).map(tuple),
    st.lists(SIGNALS, max_size=3).map(tuple), st.sampled_from(StopReason), error=TEXT,
    traceback=TEXT, success=st.none() | SIGNALS, env=TEXT,
)  # fmt: skip


@given(TRAJECTORIES)
def test_what_comes_back_is_what_was_stored(episode: Trajectory) -> None:
    assert decode(encode(episode)) == episode


def test_tool_calls_and_parts_come_back() -> None:
    messages: tuple[Message, ...] = (
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "image": "a.png"}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "add", "arguments": {"a": [1, 2.5]}}}],
        },
    )
    episode = dataclasses.replace(trajectory(0, 0), messages=messages)
    assert decode(encode(episode)).messages == messages


def test_a_trajectory_stored_before_segments_lost_two_fields_is_read() -> None:
    episode = trajectory(0, 0)
    fields = msgspec.msgpack.decode(encode(episode))
    for segments in fields[5]:
        for segment in segments:
            segment += ["policy", "agent"]
    assert decode(msgspec.msgpack.encode(fields)) == episode


class Unreadable(dict[object, object]):
    """An object of a library that fails without its session."""

    def __repr__(self) -> str:
        raise RuntimeError("the session is closed")

    __str__ = items = __iter__ = __repr__  # type: ignore[assignment]

    __hash__ = object.__hash__


HOSTILE = [
    10**400,
    -(2**70),
    "\ud800",
    [[[0] * 3]] * 2,
    json.loads("[" * 900 + "]" * 900),
    {"\udfff": {1, 2}},
    object(),
    Unreadable(),
    {Unreadable(): [1, Unreadable()]},
]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: type(value).__name__)
def test_nothing_a_model_says_can_break_the_store(value: object) -> None:
    call = {"function": {"name": "add", "arguments": {"x": value}}}
    message: Message = {"role": "assistant", "content": "\ud83d", "tool_calls": [call]}  # type: ignore[list-item]
    episode = trajectory(0, 0)
    hurt = dataclasses.replace(
        episode, messages=(message,), error="\udc80", signals=(Signal("s", 1.0, evidence=value),)
    )
    stored = decode(encode(hurt))
    assert stored.sequences == episode.sequences
    assert stored.reward == 1.0
    assert decode(encode(stored)) == stored


def test_text_of_an_enumeration_is_stored_as_the_text_it_equals() -> None:
    word: Any = Enum("Word", {"FRUIT": "fruit"}, type=str)
    signal = Signal("s", 1.0, evidence={word.FRUIT: word.FRUIT})
    assert decode(encode(dataclasses.replace(trajectory(0, 0), signals=(signal,)))).signals[0].evidence == {
        "fruit": "fruit"
    }


def test_what_cannot_be_read_is_stored_as_the_name_of_its_type() -> None:
    signal = Signal("s", 1.0, evidence={"x": Unreadable(), Unreadable(): [1]})
    stored = decode(encode(dataclasses.replace(trajectory(0, 0), signals=(signal,))))
    assert stored.signals[0].evidence == {"x": "<Unreadable without repr>", "<Unreadable without str>": [1]}


def test_every_attempt_can_be_read_again_by_another_process(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path, shard_bytes=4000)
    episodes = [trajectory(g, m) for g in range(20) for m in range(2)]
    for first in range(0, 40, 4):
        store.append(episodes[first : first + 4])
    assert len(list(tmp_path.glob("*.bin"))) > 1
    reader = TrajectoryStore(tmp_path)
    assert list(scan(tmp_path)) == episodes
    assert reader.ids() == store.ids() == [(t.sample, 0) for t in episodes]
    assert reader.read(SampleId(7, 1), 0) == episodes[15] == store.read(SampleId(7, 1))
    store.close()


def test_the_newest_attempt_is_read_when_none_is_named(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    store.append([trajectory(0, 0, attempt) for attempt in (2, 0, 1)])
    assert store.read(SampleId(0, 0)).attempt == 2
    with pytest.raises(RunError, match="no trajectory of sample 5-5"):
        store.read(SampleId(5, 5))
    store.close()


def test_two_writers_never_share_a_shard(tmp_path: Path) -> None:
    one, other = TrajectoryStore(tmp_path), TrajectoryStore(tmp_path)
    for store, group in ((one, 0), (other, 1), (one, 2)):
        store.append([trajectory(group, 0)])
    shards = {sample.group: ref.shard.name for ref, (sample, _), _ in records_in(tmp_path)}
    assert shards == {0: "0000.bin", 1: "0001.bin", 2: "0000.bin"}
    one.close()
    other.close()


def test_an_attempt_is_stored_once(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    store.append([trajectory(0, 0)])
    with pytest.raises(RunError, match="stored already: 0-0, attempt 0"):
        store.append([trajectory(0, 1), trajectory(0, 0)])
    with pytest.raises(RunError, match="twice"):
        store.append([trajectory(0, 1), trajectory(0, 1)])
    assert store.ids() == [(SampleId(0, 0), 0)]
    store.close()


def test_a_torn_end_costs_only_itself(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path / "whole")
    episodes = [trajectory(g, 0) for g in range(3)]
    store.append(episodes)
    store.close()
    refs = [ref for ref, _, _ in records_in(store.folder)]
    data = refs[0].shard.read_bytes()
    torn = tmp_path / "torn"
    torn.mkdir()
    for end in range(refs[2].offset, len(data)):
        (torn / "0000.bin").write_bytes(data[:end])
        assert [attempt for _, attempt, _ in records_of(torn / "0000.bin")] == [
            (SampleId(0, 0), 0),
            (SampleId(1, 0), 0),
        ]
        assert unreadable(torn) == ({torn / "0000.bin": 1} if end > refs[2].offset else {})
    later = TrajectoryStore(torn)
    later.append([episodes[2]])
    assert list(scan(torn)) == episodes
    later.close()


def test_a_damaged_record_costs_only_itself(tmp_path: Path) -> None:
    store = TrajectoryStore(tmp_path)
    store.append([trajectory(g, 0) for g in range(3)])
    store.close()
    refs = [ref for ref, _, _ in records_in(tmp_path)]
    data = refs[0].shard.read_bytes()
    for offset in range(refs[1].offset, refs[2].offset, 7):
        hurt = bytearray(data)
        hurt[offset] ^= 0xFF
        refs[0].shard.write_bytes(hurt)
        assert [sample.group for sample, _ in TrajectoryStore(tmp_path).ids()] == [0, 2]
        assert unreadable(tmp_path) == {refs[0].shard: 1}


FULL = """
import resource, sys
from pathlib import Path
from agentrl.errors import RunError
from agentrl.records.store import TrajectoryStore
from agentrl.types import SampleId
from tests.unit.records.synthetic import trajectory

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
store = TrajectoryStore(Path(sys.argv[1]))
stored = 0
try:
    for group in range(1000):
        store.append([trajectory(group, 0)])
        stored += 1
except RunError as error:
    print(stored, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append([trajectory(5000, 0)])
assert store.read(SampleId(5000, 0)) == trajectory(5000, 0)
"""


def test_a_full_disk_is_named_and_costs_nothing_stored(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    stored, _, message = done.stdout.partition(" ")
    assert "File too large. Make room, then continue with `agentrl resume" in message
    groups = [sample.group for sample, _ in TrajectoryStore(tmp_path).ids()]
    assert int(stored) > 5
    assert groups == [*range(int(stored)), 5000]
