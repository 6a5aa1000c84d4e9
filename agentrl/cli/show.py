"""`agentrl show RUN [SAMPLE]`: the trajectories of a run, or one of them in full."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentrl.cli.folders import existing_run
from agentrl.errors import ConfigError
from agentrl.run.folder import RunFolder
from agentrl.run.store import TrajectoryStore
from agentrl.types import Message, SampleId, Trajectory, text_of


def run(words: list[str]) -> int:
    """Print a line for each trajectory, or everything about one."""
    parser = argparse.ArgumentParser(prog="agentrl show", description="Look at the trajectories of a run.")
    parser.add_argument("run", type=Path, metavar="RUN", help="the run folder")
    parser.add_argument("sample", nargs="?", metavar="SAMPLE", help="group-member, as in 12-3; without it: a list")
    arguments = parser.parse_args(words)
    store = TrajectoryStore(RunFolder(existing_run(arguments.run)).trajectories)
    console = Console(highlight=False, soft_wrap=True)
    if arguments.sample is None:
        console.print(_table(store))
    else:
        _print_one(console, store.read(_sample_id(arguments.sample)))
    return 0


def _sample_id(text: str) -> SampleId:
    group, _, member = text.partition("-")
    if not (group.isdigit() and member.isdigit()):
        raise ConfigError(f"{text!r} names no sample: give group-member, as in 12-3")
    return SampleId(int(group), int(member))


def _table(store: TrajectoryStore) -> Table:
    table = Table("sample", "attempt", "task", "reward", "ended", "turns", "tokens", "version", box=None)
    for t in store.scan():
        reward = f"{t.reward:.3f}" if t.is_valid else "invalid"
        version = str(t.oldest_version) if t.oldest_version else "-"
        row = (str(t.sample), str(t.attempt), t.task_id, reward, t.stop_reason.value)
        table.add_row(*map(Text, (*row, str(t.turns), str(t.action_tokens), version)))
    return table


def _print_one(console: Console, t: Trajectory) -> None:
    console.print(Text(f"sample {t.sample}, attempt {t.attempt}: {t.split} task {t.task_id}", style="bold"))
    console.print(Text(f"ended {t.stop_reason.value} after {t.turns} turns and {t.action_tokens} sampled tokens"))
    console.print(Text(f"{t.timings.total_s:.2f} s: engine {t.timings.engine_s:.2f}, env {t.timings.env_s:.2f}"))
    if t.error:
        console.print(Text(t.error, style="red"))
    for message in t.messages:
        console.print(Text(f"\n{message['role']}", style="cyan"))
        console.print(Text(_words(message)))
    console.print()
    for signal in t.signals:
        value = f"{signal.value}" if signal.valid else f"invalid: {signal.reason}"
        console.print(Text(f"{signal.name} x {signal.weight:g} = {value}", style="green" if signal.valid else "red"))


def _words(message: Message) -> str:
    calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls", [])]
    return "\n".join([text for text in [text_of(message)] if text] + calls)
