"""Whole runs of the `agentrl` command on a tiny model, whose episodes wait in the middle until a test lets them go."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agentrl.cluster.leftovers import scratch_of
from agentrl.cluster.processes import ProcessRecord, ProcessRegistry
from agentrl.records.folder import RunFolder
from agentrl.records.ledger import AttemptRow, Ledger
from agentrl.report.summary import Summary, read
from agentrl.types import SampleId
from agentrl.weights.staging import staging_prefix
from tests.logged import Logged

COMMAND = [sys.executable, "-c", "import sys; from agentrl.cli.main import main; sys.exit(main())"]
QUICK = {"TORCHDYNAMO_DISABLE": "1"}
"""Engines of tests compile nothing: tracing the sampler's functions takes seconds of each start."""
PROMPTS, GROUP_SIZE = 2, 2
BATCH = PROMPTS * GROUP_SIZE
ERROR_S = 120.0
STAGED_ENV = """
import os, sys, time, uuid
from pathlib import Path
from agentrl.env import Context, Env, EnvConfig, Limits, Message, Reply, Task, Turn, reward

class StageConfig(EnvConfig):
    stage: str

class StagedEnv(Env):
    Config = StageConfig
    limits = Limits(max_turns=2, turn_timeout_s=600.0)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{n}", n) for n in range(64)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"Say {task.data}.")]

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        if turn.index or "agentrl.env.dry_run.process" in sys.orig_argv:
            return Reply.end()
        card = Path(self.config.stage, f"{ctx.member}-{uuid.uuid4().hex}")
        card.touch()
        while card.exists():
            time.sleep(0.01)
        if card.with_suffix(".broken").exists():
            raise RuntimeError("the simulator broke")
        return Reply.say("Again.")

    @reward
    def length(self, ctx: Context) -> float:
        return float(len(ctx.turns[-1].text) % 3)
"""


class Stage:
    """Where the episodes of a run wait: each leaves a card when it comes, and goes on when its card is gone."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.env = folder / "stage", folder / "staged_env.py"
        self.folder.mkdir()
        self.env.write_text(STAGED_ENV)

    @property
    def flags(self) -> list[str]:
        """What makes a run play here."""
        return ["--env", str(self.env), "--env.stage", str(self.folder)]

    def waiting(self, member: int | None = None) -> list[Path]:
        """The cards of the episodes that wait, or of those that are this member of their group."""
        cards = [card for card in self.folder.iterdir() if not card.suffix]
        return cards if member is None else [card for card in cards if card.name.startswith(f"{member}-")]

    def release(self, count: int = BATCH, member: int | None = None) -> None:
        """Let `count` of those that wait go."""
        for card in self.waiting(member)[:count]:
            card.unlink()

    def fail(self, member: int) -> None:
        """Let the environment of one that waits raise."""
        card = self.waiting(member)[0]
        card.rename(card.with_suffix(".broken"))


@dataclass
class Command(Logged):
    """An `agentrl` command that is started again and again; its logs are beside `path`."""

    path: Path
    program: Sequence[str] = tuple(COMMAND)
    began: float = field(init=False)
    _starts: int = field(init=False, default=0)

    def _begin(self, *words: str) -> Self:
        self._starts += 1
        self.began = time.monotonic()
        self.start_logged([*self.program, *words], self.path.with_name(f"{self.path.name}-{self._starts}.log"), QUICK)
        return self


@dataclass
class RewardServer(Command):
    """`agentrl serve-rm`, at the same address whenever it is started; `path` is the folder of its model."""

    url: str = field(init=False, default="")

    def start(self) -> None:
        """Start to serve, at a free port the first time."""
        self._begin("serve-rm", str(self.path), "--device", "cpu", "--port", self.url.rpartition(":")[2] or "0")
        self.url = self.until(lambda: re.findall(r" at (http://\S+)\n", self.said))[0]

    def close(self) -> None:
        """End the server if it runs."""
        if self._starts:
            self.kill()


@dataclass
class Run(Command):
    """One run folder, and the command that works on it now."""

    def train(self, model: Path, *flags: str) -> Run:
        """Start `agentrl train`; later flags win."""
        shape = ["--prompts", str(PROMPTS), "--group-size", str(GROUP_SIZE), "--max-tokens", "8", "--eval.tasks", "0"]
        small = ["--model.dtype", "float32", "--model.max_context", "256", "--engine.kv_cache_gib", "1"]
        small += ["--engine.threads", "1", "--learner.threads", "1"]
        return self._begin("train", "--model", str(model), *shape, *small, "--out", str(self.path), *flags)

    def resume(self, *flags: str) -> Run:
        """Start `agentrl resume`."""
        return self._begin("resume", str(self.path), *flags)

    def replay(self, *flags: str) -> Run:
        """Start `agentrl replay`."""
        return self._begin("replay", str(self.path), *flags)

    def interrupt(self) -> None:
        """Ctrl-C as a terminal sends it: to every process of the foreground group."""
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        """End everything, whatever a test has come to."""
        if self._starts and self.process.poll() is None:
            self.kill()
        ProcessRegistry(self.path).end_leftovers(10.0)

    # --- what the run folder says -----------------------------------------------------------------------------

    def pid(self, role: str, index: int = -1) -> int:
        """A process of the newest start: the newest of its role, or the one at `index`."""
        running = {process.pid for process in self.leftovers()}
        return [p.pid for p in ProcessRegistry(self.path).registered() if p.role == role and p.pid in running][index]

    def leftovers(self) -> list[ProcessRecord]:
        """Processes of this run that live."""
        return ProcessRegistry(self.path).leftovers()

    def remains(self) -> list[ProcessRecord | Path]:
        """What of this run is left outside its folder: processes that live, sockets, shared memory."""
        roots = ([scratch_of(self.path)], Path("/dev/shm").glob(f"{staging_prefix(self.path)}*"))
        return [*self.leftovers(), *(path for root in roots for path in root if path.exists())]

    def engine_cores(self) -> list[int]:
        """The children of the engines' actors, from their first moment."""
        return [p.pid for p in self.leftovers() if b"spawn_main" in _file(p.pid, "cmdline")]

    def rows(self) -> list[AttemptRow]:
        """The ledger's rows; none before it is there."""
        file = RunFolder(self.path).ledger
        if not file.exists():
            return []
        ledger = Ledger(file, is_read_only=True)
        try:
            return list(ledger.rows())
        finally:
            ledger.close()

    def attempts(self, state: str) -> set[tuple[SampleId, int]]:
        """Which attempts the ledger has in a state."""
        return {(row.sample, row.attempt) for row in self.rows() if row.state == state}

    def checkpoints(self) -> list[str]:
        """The names of the whole checkpoints."""
        return sorted(path.name for path in RunFolder(self.path).checkpoints.glob("step-*[0-9]"))

    def summary(self) -> Summary:
        """How the last command left the run."""
        summary = read(RunFolder(self.path))
        assert summary is not None
        return summary

    def steps(self) -> list[int]:
        """The steps in metrics.jsonl, in the order of writing."""
        file = RunFolder(self.path).metrics
        return [json.loads(line)["step"] for line in file.read_text().splitlines()] if file.exists() else []


def everybody_waits(run: Run, stage: Stage, count: int = BATCH) -> None:
    """Every episode of a batch stands in its first turn."""
    run.until(lambda: len(stage.waiting()) == count)


def pass_a_step(run: Run, stage: Stage, step: int, count: int = BATCH) -> None:
    """Let the episodes of a batch go, and wait for the checkpoint of the step that trains them."""
    everybody_waits(run, stage, count)
    stage.release(count)
    run.until(lambda: f"step-{step:06d}" in run.checkpoints())


def refused(run: Run, deadline_s: float = ERROR_S) -> str:
    """The one error that a command says last; it exits with 2 and leaves nothing running."""
    assert run.end(deadline_s) == 2, run.said
    assert run.remains() == []
    before, mark, error = run.said.rpartition("error: ")
    assert mark, run.said
    assert "Traceback" not in before  # an author's own follows the error
    return error


def lawful(run: Run) -> Summary:
    """The summary of a run whose ledger agrees with every other record."""
    summary = run.summary()
    assert summary.conservation.holds, summary.conservation
    trained = [row.sample for row in run.rows() if row.state == "trained"]
    assert len(set(trained)) == len(trained)
    return summary


def is_running(pid: int) -> bool:
    """Whether a process lives; one that only waits to be reaped does not."""
    return _file(pid, "stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"], [b"X"])


def _file(pid: int, name: str) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""
