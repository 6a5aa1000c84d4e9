"""Samples of a run in the terminal: a table of the newest, or one with every message, reward and token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentrl.errors import RunError
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import AttemptRow, Ledger, State
from agentrl.records.store import TrajectoryStore
from agentrl.report.charts import number
from agentrl.report.export import stored
from agentrl.report.transcript import Decode, compact, evidence_words, headline, text_of_part, tones_of, value_words
from agentrl.report.words import visible
from agentrl.types import Message, SampleId, TokenSequence, Trajectory

NAME = re.compile(r"(?:(?P<step>\d+)/)?(?P<group>\d+)-(?P<member>\d+)(?:\.(?P<attempt>\d+))?")
ROLES = {"system": "dim", "user": "bold", "assistant": "bold cyan", "tool": "bold yellow"}
STATES = {
    State.TRAINED: "green",
    State.STALE: "yellow",
    State.INVALID: "red",
    State.UNANSWERED: "yellow",
    State.LOST: "magenta",
}
TONES = ("on blue", "on dark_orange3", "on dark_green", "on purple4")
MOST_ROWS = 200


def show(
    folder: Path, sample: str | None = None, decoder: Callable[[], Decode | None] = lambda: None
) -> RenderableType:
    """Return the newest samples of the run in `folder`, or one sample.

    `sample` is "12-3", "12-3.1" (its second attempt) or "40/12-3" (in the evaluation after step 40). `decoder` loads
    the tokenizer; it is called when there is a sample to show. Raises RunError if the sample does not exist, and
    ConfigError if the evaluation does not.
    """
    run = RunFolder(folder)
    if sample is None:
        return listing(run)
    name = NAME.fullmatch(sample)
    if name is None:
        raise RunError(f"{sample!r} is not a sample: write 12-3, 12-3.1 (an attempt) or 40/12-3 (in an evaluation)")
    store = TrajectoryStore(stored(run, int(name["step"]) if name["step"] else None))
    attempt = int(name["attempt"]) if name["attempt"] else None
    found = store.read(SampleId(int(name["group"]), int(name["member"])), attempt)
    return render(found, decoder())


def listing(run: RunFolder) -> RenderableType:
    """Return a table of the newest attempts in the ledger, newest last."""
    ledger = Ledger(run.ledger, is_read_only=True)
    rows = list(ledger.rows())
    ledger.close()
    table = Table(box=None, pad_edge=False, header_style="dim")
    has_several = len({row.env for row in rows}) > 1
    environment = ("environment",) if has_several else ()
    for column in ("sample", *environment, "state", "step", "reward", "tokens", "turns", "ended", "why"):
        table.add_column(column, justify="right" if column in ("step", "reward", "tokens", "turns") else "left")
    for row in rows[-MOST_ROWS:]:
        sample, *cells = _cells(row)
        table.add_row(sample, *((visible(row.env),) if has_several else ()), *cells)
    words = f"{len(rows)} attempts" + (f", the last {MOST_ROWS} shown" if len(rows) > MOST_ROWS else "")
    steps = run.evaluated_steps()
    held_out = f"; evaluations after steps {', '.join(map(str, steps))}" if steps else ""
    return Group(
        table, Text(f"{words}{held_out}. Show one: agentrl show {run.path} {rows[-1].sample if rows else '0-0'}")
    )


def render(trajectory: Trajectory, decode: Decode | None = None) -> RenderableType:
    """Return one trajectory: messages, tool calls, rewards with evidence, error, and tokens by version."""
    t = trajectory
    parts: list[RenderableType] = [
        Rule(f"sample {t.sample}, attempt {t.attempt}"),
        Text(visible(headline(t)), style="dim"),
    ]
    for message in t.messages:
        parts += _message(message)
    parts.append(_signals(t))
    if t.error:
        parts.append(Text(visible(t.error), style="red"))
    if t.traceback:
        parts.append(Text(visible(t.traceback), style="dim"))
    for sequence in t.sequences:
        parts += _tokens(sequence, decode)
    return Group(*parts)


def _cells(row: AttemptRow) -> list[RenderableType]:
    name = f"{row.sample}" + (f".{row.attempt}" if row.attempt else "")
    numbers = [number(value) if value is not None else "" for value in (row.step, row.reward, row.tokens, row.turns)]
    state = Text(row.state.value, style=STATES.get(row.state, ""))
    return [name, state, *numbers, row.stop_reason or "", Text(visible(row.reason[:80]), style="dim")]


def _message(message: Message) -> Iterator[RenderableType]:
    role, content = message["role"], message["content"]
    yield Text(f"\n{role}", style=ROLES.get(role, ""))
    if thought := message.get("reasoning_content"):
        yield Text(visible(thought), style="italic dim")
    if isinstance(content, str):
        yield Text(visible(content))
    else:
        yield from (
            Text(visible(text_of_part(part)), style="italic dim" if part["type"] == "thinking" else "")
            for part in content
        )
    for call in message.get("tool_calls", []):
        function = call["function"]
        yield Text(visible(f"{function['name']}({compact(function['arguments'])})"), style="yellow")


def _signals(t: Trajectory) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", title_justify="left")
    for column in ("\nreward", "\nvalue", "\nweight", "\nscope", "\nevidence", "\nreason"):
        table.add_column(column)
    for s in t.judgements:
        cells = (s.name, value_words(s), number(s.weight), s.scope, evidence_words(s), s.reason)
        table.add_row(*(Text(visible(cell)) for cell in cells))
    return table


def _tokens(sequence: TokenSequence, decode: Decode | None) -> list[RenderableType]:
    tones = tones_of(sequence)
    head, body = Text("\ntokens  ", style="dim"), Text()
    for version, tone in tones.items():
        head.append(f" version {version} ", style=TONES[tone])
        head.append(" ")
    ids = sequence.ids
    texts = decode(ids) if decode else [f"{token} " for token in ids]
    for text, by in zip(texts, sequence.versions, strict=True):
        body.append(visible(text), style="dim" if by is None else TONES[tones[by]])
    return [head, body]
