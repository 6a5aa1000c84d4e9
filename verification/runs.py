"""Whole runs of `agentrl train` on a model made on the spot, and `agentrl doctor`."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import agentrl
from agentrl.cli import doctor as command
from agentrl.config.machine import detect
from agentrl.metrics.trackers import read_evaluations
from agentrl.records.folder import RunFolder
from tests.tiny import tiny_reward_model
from verification.check import BoundError, Setting, within
from verification.combinations import REWARD_MODEL, SERVED
from verification.models import small

STEPS, PROMPTS, GROUP_SIZE = 2, 2, 4
ON_CPUS = ("--engine.threads", "1", "--engine.kv_cache_gib", "1")
ENV = """
from agentrl.env import Env, Message, Task, reward

class Count(Env):
    def tasks(self, split):
        return [Task(f"{split}/{n}", n) for n in range(16)]

    def setup(self, task, ctx):
        return [Message(role="user", content=f"Say {task.data}.")]

    @reward
    def length(self, ctx):
        return float(len(ctx.turns[-1].text) % 3)
"""
ASKING = """
from agentrl.env import Context, Env, Limits, Message, Reply, Task, Turn, reward, role

class Ask(Env):
    limits = Limits(max_turns=2)

    def tasks(self, split: str) -> list[Task]:
        return [Task(f"{split}/{n}", n) for n in range(16)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"Say {task.data}.")]

    @role
    def partner(self, messages: list[Message]) -> str:
        return "Again."

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        return Reply.end() if turn.index else Reply.say(await self.partner.ask("Go on."))

    @reward
    def length(self, ctx: Context) -> float:
        return float(len(ctx.turns[-1].text) % 3)
"""


def colocated(setting: Setting) -> str:
    """Train two steps with engine and learner in turns on one GPU."""
    return _trained(setting, "--engine.placement", "colocate")


def colocated_lora(setting: Setting) -> str:
    """Train two steps of adapters, with engine and learner in turns on one GPU."""
    return _trained(setting, "--engine.placement", "colocate", "--lora.rank", "8")


def separate(setting: Setting) -> str:
    """Train two steps with engine and learner on GPUs of their own, sampling during updates."""
    return _trained(setting, "--engine.placement", "separate", "--rollout.max_staleness", "1")


def scorers(setting: Setting) -> str:
    """Train two steps with a reference on a GPU of its own."""
    flags = ["--engine.placement", "colocate", "--algorithm.kl_coef", "0.1", "--scorers.placement", "separate"]
    return _trained(setting, *flags)


def critic(setting: Setting) -> str:
    """Train two steps with a critic on a GPU of its own."""
    return _trained(setting, "--algo", "ppo", "--engine.placement", "colocate", "--critic.placement", "separate")


def roles(setting: Setting) -> str:
    """Train two steps with a model that plays a role, on an engine on a GPU of its own."""
    partner = str(small(setting.folder / "partner", seed=1))
    flags = ["--engine.placement", "colocate", "--roles.partner.model", partner, "--roles.partner.max_tokens", "8"]
    return _trained(setting, *flags, env=ASKING)


def rewards(setting: Setting, *flags: str) -> str:
    """Train two steps with a reward model on the GPU that engine and learner have in turns."""
    placement = flags or ("--engine.placement", "colocate")
    return _trained(setting, "--reward.models", _served(setting), "--reward.placement", "colocate", *placement)


def evaluation(setting: Setting, *flags: str) -> str:
    """Score a model on held-out tasks, with engines on all that the machine has: no learner takes a GPU."""
    file, out = setting.folder / "env.py", setting.folder / "evaluation"
    file.write_text(ENV)
    what = ["--env", str(file), "--device", setting.device, "--max-tokens", "8", "--model.max_context", "512"]
    sampled = ["--eval.tasks", str(PROMPTS), "--eval.samples", str(GROUP_SIZE), "--out", str(out)]
    _agentrl(setting, "eval", str(small(setting.folder / "model")), *what, *sampled, *flags)
    (record,) = read_evaluations(RunFolder(out))
    valid = record.tasks * record.samples - record.invalid
    within("samples that are missing or invalid", PROMPTS * GROUP_SIZE - valid, 0)
    return f"{valid} samples of {record.tasks} tasks, pass@1 {record.pass_at_1.mean:.3f}"


def on_cpus(setting: Setting, *flags: str) -> str:
    """Train two steps on CPUs, as the others do on GPUs."""
    return _trained(setting, *ON_CPUS, "--learner.threads", "1", *flags)


def combined(setting: Setting, flags: Mapping[str, str]) -> str:
    """Train two steps on CPUs with these flags too."""
    if flags.get("reward.models") == SERVED:
        flags = {**flags, "reward.models": _served(setting)}
    return on_cpus(setting, *(word for key, value in flags.items() for word in (f"--{key}", value)))


def _served(setting: Setting) -> str:
    """Make a reward model; returns the flag's value with its folder."""
    return SERVED.replace(REWARD_MODEL, str(tiny_reward_model(setting.folder / "rewards")))


def _trained(setting: Setting, *flags: str, env: str = ENV) -> str:
    """Train, and compare records and weights: the conservation law holds, a replay gives the same weights."""
    file, run = setting.folder / "env.py", setting.folder / "run"
    file.write_text(env)
    shape = ["--prompts", str(PROMPTS), "--group-size", str(GROUP_SIZE), "--max-tokens", "8", "--steps", str(STEPS)]
    where = ["--model", str(small(setting.folder / "model")), "--env", str(file), "--device", setting.device]
    small_run = ["--eval.tasks", "0", "--model.max_context", "512", "--learner.lr", "1e-4", "--out", str(run)]
    began = time.monotonic()
    _agentrl(setting, "train", *where, *shape, *small_run, *flags)
    seconds = time.monotonic() - began
    said = f"{_lawful(run)}, {seconds:.0f} s"
    replay(setting, run, said)
    return f"{said}; a replay gives the same weights"


def _lawful(run: Path) -> str:
    """Return what a run trained. Raises BoundError unless its records agree and it learned."""
    summary = agentrl.Run(run).summary
    if summary is None or not summary.is_finished:
        raise BoundError(f"the run ended before its last step: {summary.ended if summary else 'it has no summary'}")
    if not summary.conservation.holds:
        raise BoundError(f"the conservation law does not hold: {summary.conservation}")
    trained = summary.counts.trained
    within("samples that are missing", STEPS * PROMPTS * GROUP_SIZE - trained, 0)
    if len({step.learner.digest for step in agentrl.Run(run).steps}) < STEPS:
        raise BoundError("a step changed no weight")
    return f"{STEPS} steps, {trained} samples trained, {summary.restarts} restarts, the conservation law holds"


def replay(setting: Setting, run: Path, said: str) -> None:
    """Replay the run that `said` describes. Raises BoundError if the weights are others."""
    try:
        _agentrl(setting, "replay", str(run))
    except BoundError as error:
        raise BoundError(f"{error} (the run itself: {said})") from None


def _agentrl(setting: Setting, *words: str) -> None:
    """Run a command of agentrl. Raises BoundError with its error."""
    done = subprocess.run([*setting.agentrl, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout, flush=True)
    if done.returncode:
        said = done.stdout.rpartition("error: ")[2].strip() or f"exit code {done.returncode}"
        raise BoundError(f"agentrl {words[0]}: {said}")


def doctor(setting: Setting) -> str:
    """Compare the GPUs that `agentrl doctor` finds, and its exit code, with what it prints."""
    said = StringIO()
    with redirect_stdout(said):
        code = command.run([])
    print(said.getvalue())
    gpus = [gpu.name for gpu in detect().gpus]
    within("GPUs that agentrl does not find", setting.gpus - len(gpus), 0)
    missing = re.findall(r"^MISSING +(.+?)  ", said.getvalue(), re.MULTILINE)
    if bool(missing) != bool(code):
        raise BoundError(f"the exit code is {code}, missing are {missing}")
    return f"{len(gpus)} GPUs found; missing: {', '.join(missing) or 'nothing'}"
