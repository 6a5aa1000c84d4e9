"""One trajectory for human eyes in the report: messages, rewards, and each token with the version that sampled it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from agentrl.report import page
from agentrl.report.charts import number
from agentrl.types import Message, Part, Segment, Signal, TokenSequence, Trajectory, Version

# From the ids of a sequence to the text of each id.
Decode = Callable[[Sequence[int]], Sequence[str]]

MOST_TOKENS = 3000
CUT, MOST_PARTS = "\ufffd", 4  # what stands for a piece of a character; UTF-8 has no more bytes for one
TONES = 4


def decoder(model: Path) -> Decode:
    """The text of each token, by the tokenizer in the folder `model`.

    A character that several tokens make up is the last one's.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)

    def decode(ids: Sequence[int]) -> list[str]:
        texts, parts = list[str](), list[int]()
        for token in ids:
            parts.append(token)
            text = str(tokenizer.decode(parts))
            is_whole = CUT not in text or len(parts) == MOST_PARTS
            texts.append(text if is_whole else "")
            if is_whole:
                parts = []
        return [*texts[:-1], str(tokenizer.decode(parts))] if parts else texts

    return decode


def transcript(trajectory: Trajectory, decode: Decode | None = None) -> str:
    """The inside of a trajectory as HTML; everything the model wrote is escaped. Without `decode` tokens are ids."""
    parts = [
        "".join(_message(message) for message in trajectory.messages),
        "<h3>Rewards</h3>" + _signals(trajectory.judgements) if trajectory.judgements else "",
        f'<h3>Error</h3><pre class="bad">{escape(trajectory.error)}</pre>' if trajectory.error else "",
        f"<pre>{escape(trajectory.traceback)}</pre>" if trajectory.traceback else "",
        *(_tokens(sequence, i, decode) for i, sequence in enumerate(trajectory.sequences)),
    ]
    return "".join(parts)


def headline(trajectory: Trajectory) -> str:
    """One line: reward, ending, length."""
    t = trajectory
    fate = "unanswered" if t.is_unanswered else "invalid"
    reward = f"reward {number(t.reward)}" if t.is_trainable else fate
    turns = f"{t.turns} turn{'s' if t.turns != 1 else ''}"
    spent = f"{t.action_tokens} tokens · {t.timings.total_s:.1f} s"
    return f"{reward} · {t.stop_reason} · {turns} · {spent} · task {t.task_id}"


def text_of_part(part: Part) -> str:
    """What a part of a message says; an image is told by its name."""
    if part["type"] == "text":
        return part["text"]
    return part["thinking"] if part["type"] == "thinking" else f"[image {part['image'][:200]}]"


def _message(message: Message) -> str:
    content = message["content"]
    said = [f"<pre>{escape(content)}</pre>"] if isinstance(content, str) and content else []
    if thought := message.get("reasoning_content"):
        said.insert(0, f'<pre class="thinking">{escape(thought)}</pre>')
    if isinstance(content, list):
        said += [_part(part) for part in content]
    for call in message.get("tool_calls", []):
        function = call["function"]
        said.append(f'<pre class="call">{escape(function["name"])}({escape(compact(function["arguments"]))})</pre>')
    role = message["role"]
    kind = f" {role}" if role in ("system", "user", "assistant", "tool") else ""
    return f'<div class="message{kind}"><div class="role">{escape(role)}</div><div>{"".join(said)}</div></div>'


def _part(part: Part) -> str:
    kind = ' class="thinking"' if part["type"] == "thinking" else ""
    return f"<pre{kind}>{escape(text_of_part(part))}</pre>"


def _signals(signals: Sequence[Signal]) -> str:
    rows = [[s.name, s.scope, evidence_words(s), s.reason, number(s.weight), value_words(s)] for s in signals]
    return page.table(["signal", "scope", "evidence", "reason", "weight", "value"], rows, numbers=2)


def evidence_words(signal: Signal) -> str:
    """What a signal shows for itself; a traceback stands below, on its own."""
    return "" if signal.evidence is None or signal.traceback else compact(signal.evidence)


def value_words(signal: Signal) -> str:
    """The value of a signal; an invalid one has none."""
    return number(signal.value) if signal.valid and signal.value is not None else "invalid"


def compact(value: Any) -> str:
    """A value in one line of JSON, text as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def _tokens(sequence: TokenSequence, index: int, decode: Decode | None) -> str:
    ids = sequence.ids
    texts = list(decode(ids)) if decode else [f"{token} " for token in ids]
    tones = tones_of(sequence)
    out: list[str] = []
    start = 0
    for segment in sequence.segments:
        out.append(_segment(segment, texts[start : start + len(segment.ids)], tones))
        start += len(segment.ids)
        if start > MOST_TOKENS:
            out.append(f'<span class="context"> … {len(ids) - start} more</span>')
            break
    names = [f'<i class="v{tone}">version {version}</i>' for version, tone in tones.items()]
    title = f"Tokens of sequence {index + 1}" if index else "Tokens"
    head = f'<h3>{title}: {"".join(names)} <span class="context">context</span></h3>'
    return f'{head}<pre class="tokens" tabindex="0">{"".join(out)}</pre>'


def tones_of(sequence: TokenSequence) -> dict[Version, int]:
    """A colour for each version in a sequence, by age."""
    versions = sorted({span.version for segment in sequence.segments for span in segment.versions})
    return {version: i % TONES for i, version in enumerate(versions)}


def _segment(segment: Segment, texts: Sequence[str], tones: dict[Version, int]) -> str:
    if not segment.is_action:
        return f'<span class="context">{escape("".join(texts))}</span>'
    out = []
    for span in segment.versions:
        for i in range(span.start, span.end):
            told = f"{span.version}, logprob {segment.logprobs[i]:.3f}, id {segment.ids[i]}"
            out.append(f'<i class="v{tones[span.version]}" title="{told}">{escape(texts[i])}</i>')
    return "".join(out)
