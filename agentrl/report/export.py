"""`agentrl.export`: trajectories of a run as JSON lines or Parquet, for other tools."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec

from agentrl.errors import ConfigError, UnknownNameError
from agentrl.records.folder import RunFolder, existing_run, path_of, unwritable
from agentrl.records.jsonl import atomic
from agentrl.records.ledger import Ledger
from agentrl.records.store import scan
from agentrl.types import Message, Signal, TokenSequence, Trajectory

Format = Literal["jsonl", "parquet"]

BATCH = 32
"""Rows of a Parquet row group: with long episodes each one is many megabytes."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token sequence; all lists have its length T.

    `mask` is 1 on sampled tokens. `logprobs` are the sampler's, 0.0 on context. `versions` name the weights that
    sampled each token as "incarnation.publications", null on context.
    """

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    versions: list[str | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One exported trajectory.

    `env` is the environment's label, `state` what happened to the attempt in training ("" in an evaluation) and `step`
    the step that trained it. `reward` is null if it is invalid, `success` if the environment was not asked for it or
    could not decide.
    """

    group: int
    member: int
    attempt: int
    env: str
    split: str
    task_id: str
    state: str
    step: int | None
    reward: float | None
    stop_reason: str
    success: bool | None
    messages: tuple[Message, ...]
    signals: tuple[Signal, ...]
    sequences: list[Tokens]


def export(
    path: str | PathLike[str],
    out: str | PathLike[str] | None = None,
    format: Format | None = None,  # noqa: A002
    evaluation: int | None = None,
) -> Path:
    """Write every trajectory of the run in the folder `path` to the file `out` and return the file's path.

    `evaluation` exports the evaluation after that step instead of training. The default format is that of the suffix
    of `out`, else "jsonl"; the default `out` is a file in the run's folder. Rows are written one by one, and `out`
    appears when it is complete. Works while the run is going. Raises ConfigError if there is no such run or evaluation.
    """
    run = RunFolder(existing_run(path))
    target = path_of(out, "out") if out is not None else None
    chosen = format or _format_of(target)
    if chosen not in FORMATS:
        raise UnknownNameError("format", chosen, FORMATS)
    written = rows(run, evaluation)
    stem = "trajectories" if evaluation is None else f"evaluation-{evaluation:06d}"
    file = target or run.path / f"{stem}.{chosen}"
    try:
        with atomic(file) as stream:
            FORMATS[chosen](stream, written)
    except OSError as error:
        raise unwritable(file, error) from error
    return file


def _format_of(out: Path | None) -> str:
    suffix = out.suffix.removeprefix(".") if out else ""
    if suffix and suffix not in FORMATS:
        known = " or ".join(f".{name}" for name in FORMATS)
        raise ConfigError(f"the suffix of {out} names no format: write {known}, or choose a format")
    return suffix or "jsonl"


def rows(run: RunFolder, evaluation: int | None = None) -> Iterator[Row]:
    """Yield the rows of a run's training, or of one of its evaluations, in the order of storing."""
    folder = stored(run, evaluation)
    return _training(run, folder) if folder == run.trajectories else (row(t) for t in scan(folder))


def stored(run: RunFolder, evaluation: int | None = None) -> Path:
    """Return the folder of the trajectories of training, or of the evaluation after a step.

    A run that only evaluates has its single evaluation as default. Raises ConfigError if there is none.
    """
    if evaluation is None and (run.is_training or not run.evaluated(0).is_dir()):
        return run.trajectories
    if not isinstance(evaluation or 0, int):
        raise ConfigError(f"evaluation must be the number of a step, got {evaluation!r}")
    folder = run.evaluated(evaluation or 0)
    if not folder.is_dir():
        known = ", ".join(str(step) for step in run.evaluated_steps())
        other = f" after step {evaluation}, only after {known}" if known else "s"
        raise ConfigError(f"{run.path} has no evaluation{other}")
    return folder


def row(trajectory: Trajectory, state: str = "", step: int | None = None) -> Row:
    """Return one trajectory, with its state in the ledger."""
    t = trajectory
    success = bool(t.success.value) if t.success is not None and t.success.valid else None
    return Row(
        *t.sample, t.attempt, t.env, t.split, t.task_id, state, step, t.reward if t.is_valid else None,
        t.stop_reason.value, success, t.messages, t.signals, [_tokens(sequence) for sequence in t.sequences],
    )  # fmt: skip


def _training(run: RunFolder, folder: Path) -> Iterator[Row]:
    """Yield the rows of training. States are read late, for a running run stores trajectories before it uses them."""
    if not run.ledger.is_file():
        return
    with closing(Ledger(run.ledger, is_read_only=True)) as ledger:
        for t in scan(folder):
            known = ledger.row((t.sample, t.attempt))
            yield row(t, known.state.value, known.step) if known else row(t)


def _tokens(sequence: TokenSequence) -> Tokens:
    versions = [None if version is None else str(version) for version in sequence.versions]
    return Tokens(sequence.ids, sequence.mask, sequence.logprobs, versions)


# --- formats ----------------------------------------------------------------------------------------------------


def _write_jsonl(file: BinaryIO, written: Iterable[Row]) -> None:
    encoder = msgspec.json.Encoder()
    for item in written:
        file.write(encoder.encode(item) + b"\n")


def _write_parquet(file: BinaryIO, written: Iterator[Row]) -> None:
    """Values without a fixed type (message parts, tool calls, evidence) are JSON text."""
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError('Parquet needs pyarrow: `pip install pyarrow`, or choose the format "jsonl"') from None
    schema = _schema(arrow)
    with parquet.ParquetWriter(file, schema) as writer:
        while batch := [_columns(item) for item in islice(written, BATCH)]:
            writer.write_batch(arrow.RecordBatch.from_pylist(batch, schema))


def _schema(arrow: Any) -> Any:
    text, number, whole = arrow.string(), arrow.float64(), arrow.int64()
    message = {"role": text, "content": text, "reasoning_content": text, "tool_calls": text, "tool_call_id": text}
    signal = {"name": text, "value": number, "weight": number, "scope": text, "valid": arrow.bool_(), "reason": text}
    tokens = {"ids": arrow.int32(), "mask": arrow.int8(), "logprobs": number, "versions": text}
    columns = {
        "group": whole, "member": whole, "attempt": whole, "split": text, "task_id": text, "state": text,
        "step": whole, "reward": number, "stop_reason": text, "success": arrow.bool_(),
        "messages": _structs(arrow, message | {"name": text}),
        "signals": _structs(arrow, signal | {"evidence": text, "verifier": text, "turn": whole}),
        "sequences": _structs(arrow, {name: arrow.list_(kind) for name, kind in tokens.items()}),
    }  # fmt: skip
    return arrow.schema(list(columns.items()))


def _structs(arrow: Any, fields: dict[str, Any]) -> Any:
    return arrow.list_(arrow.struct(list(fields.items())))


def _columns(item: Row) -> dict[str, Any]:
    columns: dict[str, Any] = msgspec.to_builtins(item)
    for message in columns["messages"]:
        message.update({name: _text(message[name]) for name in ("content", "tool_calls") if name in message})
    for signal in columns["signals"]:
        signal["evidence"] = _text(signal["evidence"])
    return columns


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


FORMATS = {"jsonl": _write_jsonl, "parquet": _write_parquet}
