"""Transcript of a trajectory: messages, rewards, and each token with the version that sampled it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agentrl.config.models import tokenizer
from agentrl.report.charts import number
from agentrl.report.parts import Table
from agentrl.types import Part, Segment, Signal, TokenSequence, Trajectory, Version

Decode = Callable[[Sequence[int]], Sequence[str]]
"""The text of each token of a sequence, from its ids."""

MOST_TOKENS = 3000
CUT, MOST_PARTS = "\ufffd", 4  # the sign of an incomplete character; UTF-8 has at most four bytes for one
TONES = 4


def decoder(model: Path) -> Decode:
    """Decode tokens with the tokenizer in the folder `model`.

    A character that consists of several tokens is the text of the last one.
    """
    text_of = partial(tokenizer(model).decode, skip_special_tokens=False)

    def decode(ids: Sequence[int]) -> list[str]:
        texts, parts = list[str](), list[int]()
        for token in ids:
            parts.append(token)
            text = str(text_of(parts))
            is_whole = CUT not in text or len(parts) == MOST_PARTS
            texts.append(text if is_whole else "")
            if is_whole:
                parts = []
        return [*texts[:-1], str(text_of(parts))] if parts else texts

    return decode


class Piece(NamedTuple):
    """Text of a sampled token with the colour of its version and a title, or of context, which has neither."""

    text: str
    tone: int | None = None
    title: str = ""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token sequence as pieces, and the colour of each version in it."""

    tones: dict[Version, int]
    pieces: list[Piece]


@dataclass(frozen=True, slots=True)
class Transcript:
    """An episode with the table of its rewards and its tokens, under a title and a note."""

    title: str
    note: str
    episode: Trajectory
    rewards: Table
    sequences: list[Tokens]


def transcript(trajectory: Trajectory, decode: Decode | None = None, title: str = "") -> Transcript:
    """Build the transcript of a trajectory. Without `decode` tokens are shown as ids."""
    sequences = [_tokens(sequence, decode) for sequence in trajectory.sequences]
    note = f"sample {trajectory.sample}, {headline(trajectory)}"
    return Transcript(title, note, trajectory, _rewards(trajectory.judgements), sequences)


def headline(trajectory: Trajectory) -> str:
    """Return one line with reward, stop reason, turns, length and task."""
    t = trajectory
    untrainable = "unanswered" if t.is_unanswered else "invalid"
    reward = f"reward {number(t.reward)}" if t.is_trainable else untrainable
    turns = f"{t.turns} turn{'s' if t.turns != 1 else ''}"
    spent = f"{t.action_tokens} tokens · {t.timings.total_s:.1f} s"
    return f"{reward} · {t.stop_reason} · {turns} · {spent} · task {t.task_id}"


def text_of_part(part: Part) -> str:
    """Return the text of a part of a message; an image is shown as its path."""
    if part["type"] == "text":
        return part["text"]
    return part["thinking"] if part["type"] == "thinking" else f"[image {part['image'][:200]}]"


def _rewards(signals: Sequence[Signal]) -> Table:
    rows = [[s.name, s.scope, evidence_words(s), s.reason, number(s.weight), value_words(s)] for s in signals]
    return Table(["signal", "scope", "evidence", "reason", "weight", "value"], rows, numbers=2)


def evidence_words(signal: Signal) -> str:
    """Return the evidence of a signal, except a traceback, which is shown separately."""
    return "" if signal.evidence is None or signal.traceback else compact(signal.evidence)


def value_words(signal: Signal) -> str:
    """Return the value of a signal, or "invalid"."""
    return number(signal.value) if signal.valid and signal.value is not None else "invalid"


def compact(value: Any) -> str:
    """Return a value as one line of JSON, text unchanged."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def _tokens(sequence: TokenSequence, decode: Decode | None) -> Tokens:
    ids = sequence.ids
    texts = list(decode(ids)) if decode else [f"{token} " for token in ids]
    tones = tones_of(sequence)
    pieces: list[Piece] = []
    start = 0
    for segment in sequence.segments:
        pieces += _pieces(segment, texts[start : start + len(segment.ids)], tones)
        start += len(segment.ids)
        if start > MOST_TOKENS:
            pieces.append(Piece(f" … {len(ids) - start} more"))
            break
    return Tokens(tones, pieces)


def _pieces(segment: Segment, texts: Sequence[str], tones: dict[Version, int]) -> Iterator[Piece]:
    if not segment.is_action:
        yield Piece("".join(texts))
    for span in segment.versions:
        for i in range(span.start, span.end):
            title = f"{span.version}, logprob {segment.logprobs[i]:.3f}, id {segment.ids[i]}"
            yield Piece(texts[i], tones[span.version], title)


def tones_of(sequence: TokenSequence) -> dict[Version, int]:
    """Return the colour of each version in a sequence; versions that follow each other differ."""
    versions = sorted({span.version for segment in sequence.segments for span in segment.versions})
    return {version: i % TONES for i, version in enumerate(versions)}
