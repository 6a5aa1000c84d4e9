"""The environment: a problem, public tests that give feedback on programs, and hidden tests that decide."""

import asyncio
import hashlib
import math
import random
from collections.abc import Callable, Mapping
from typing import Literal

from agentrl_sandbox import SandboxError, describe
from pydantic import Field

from agentrl.env import (
    Context,
    Env,
    EnvConfig,
    Limits,
    Message,
    Policy,
    Reply,
    Signal,
    Task,
    Tasks,
    Turn,
    is_in_share,
    reward,
    shared,
    waiting,
)
from agentrl.errors import EnvError
from agentrl_code import generator
from agentrl_code.cases import Call, Io, Test
from agentrl_code.data import load
from agentrl_code.extract import defines, extract, is_program
from agentrl_code.grader import RETRY, Grader
from agentrl_code.policy import Policy as Grading
from agentrl_code.problem import Problem
from agentrl_code.verdict import Result, Status, Verdict

PLEA = "Answer with the whole program in one ```python block."
LAST = "No time is left to try programs: the next one is final."
LEAST_S = 1.0
"""Minimum time for trying a program."""
MOST_FEEDBACK = 1500
STAGES = 4
"""Of a scoring: waiting for a sandbox, the tests, repeating them if a sandbox is lost, and overhead."""


class CodeConfig(EnvConfig):
    """The `--env.*` options: source of the problems, number of attempts, and grading."""

    level: Literal[1, 2, 3, 4] = Field(1, description="1: a formula; 2: two numbers; 3: a list; 4: stdin and stdout")
    data: str = Field("", description="a .jsonl or .jsonl.gz file (HumanEval, MBPP, general) instead of a level")
    data_heldout: str = Field("", description="the same for the held-out tasks; '' holds out a share of `data`")
    heldout_share: float = Field(0.1, gt=0, lt=1, description="share of `data` held out when `data_heldout` is ''")
    turns: int = Field(1, ge=1, le=16, description="programs per episode; all but the last get public-test feedback")
    timeout_s: float = Field(6.0, gt=0, le=60, description="CPU seconds of a program; wall clock three times as much")
    float_tolerance: float = Field(0.0, ge=0, lt=1, description="tolerance for expected floats; 0: exact")
    packages: tuple[str, ...] = Field((), description="installed packages that programs can import: numpy,sympy")
    system: str = Field("", description="system message; '' sends none")


class CodeEnv(Env):
    """Write a program: reward 1 if it passes every hidden test, else 0; invalid if it cannot be graded."""

    Config = CodeConfig
    config: CodeConfig
    limits = Limits(max_turns=16, turn_timeout_s=900, score_timeout_s=900)
    blocking = False

    def preflight(self) -> str:
        """Describe the sandbox of programs; DataError if the data cannot be read."""
        for name in filter(None, (self.config.data, self.config.data_heldout)):
            load(name)
        return f"Programs run in {describe(packages=self.config.packages)}."

    @shared
    def grader(self) -> Grader:
        """Create the grader of this worker, which owns its sandboxes."""
        return Grader(packages=self.config.packages)

    async def tasks(self, split: str) -> Tasks:
        """Return endless draws for "train" and a fixed list for "test"; with `data`, the rows of the split."""
        if self.config.data:
            return [_task(problem) for problem in await asyncio.to_thread(self._problems, split)]
        if split == "test":
            return [_task(problem) for problem in generator.held_out_problems(self.config.level)]
        return _drawn(self.config.level)

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Return the system message, if any, and the question."""
        ctx.state.verdict = None
        user = Message(role="user", content=task.data.question)
        return [Message(role="system", content=self.config.system), user] if self.config.system else [user]

    async def respond(self, turn: Turn, ctx: Context) -> Reply:
        """Run the public tests and report the first that fails; the episode ends if none does, or after the last turn.

        It also ends, after a reply that announces it, when no time is left to try programs.
        """
        public = ctx.task.data.public
        if len(ctx.turns) >= self.config.turns or not public:
            return Reply.end()
        if (left_s := _left_s(ctx)) < LEAST_S:
            return Reply.end()
        answer = extract(turn.text)
        if answer is None:
            return Reply.say(f"I cannot find a program. {PLEA}")
        with ctx.tool_time.charged():
            verdict = await self._grade(ctx.task.data, answer, public, left_s)
        if verdict.fault == "infra":
            raise SandboxError(verdict.reason)
        if verdict.status is Status.PASSED or verdict.fault == "task":
            return Reply.end()
        last = f"{LAST} " if _left_s(ctx) < LEAST_S else ""
        return Reply.say(f"{verdict.feedback[:MOST_FEEDBACK]}\n\n{last}Fix the program. {PLEA}")

    @reward
    async def solved(self, ctx: Context) -> Signal:
        """Return 1 if the last program passes every hidden test."""
        verdict = await self._verdict(ctx)
        return _signal("solved", verdict, verdict.reward)

    @reward(weight=0.0)
    async def share(self, ctx: Context) -> Signal:
        """Return the share of hidden tests that the last program passes."""
        verdict = await self._verdict(ctx)
        return _signal("share", verdict, verdict.share)

    @reward(weight=0.0)
    def format(self, ctx: Context) -> float:
        """Return 1 if the last turn has a Python program that defines the requested function."""
        answer = extract(ctx.text)
        if answer is None:
            return 0.0
        problem: Problem = ctx.task.data
        program = problem.program(answer)
        return float(defines(program, problem.entry) if problem.entry else is_program(program))

    def oracle(self, task: Task) -> Policy:
        """Return the reference program."""
        if not task.data.solution:
            raise EnvError(f"task {task.id} has no reference solution")
        return [_block(task.data.solution)]

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Return policies that try to earn a reward without solving the task."""
        problem: Problem = task.data
        name = problem.entry or _named(problem)
        head = f"def {name}(*args, **kwargs):\n"
        turns = {
            "silence": "",
            "junk": "It is a fine function, and surely passes.",
            "still thinking": f"<think>{_block(problem.solution)}",
            "nothing": _block(f"{head}    pass\n"),
            "equal to everything": _block(_EQUAL.format(head=head)),
            "the end": _block("import os\nprint('passed', flush=True)\nos._exit(0)\n"),
            "an end inside": _block(f"import os\n{head}    os._exit(0)\n"),
            "a look around": _block(_LOOK.format(head=head)),
            "the public tests by heart": _block(_by_heart(head, problem.public)),
        }
        return {canary: [text] * self.config.turns for canary, text in turns.items()}

    async def _verdict(self, ctx: Context) -> Verdict:
        """Return the verdict of the hidden tests on the last turn; computed once, even if it is cut short."""
        if ctx.state.verdict is None:
            ctx.state.verdict = Verdict.invalid("the grading was cut short", "infra")
            answer = extract(ctx.text)
            if answer is None:
                ctx.state.verdict = Verdict.of((Result(Status.ERROR, reason="there is no program"),))
            else:
                ctx.state.verdict = await self._grade(ctx.task.data, answer, ctx.task.data.hidden)
        verdict: Verdict = ctx.state.verdict
        return verdict

    async def _grade(self, problem: Problem, answer: str, tests: tuple[Test, ...], left_s: float = math.inf) -> Verdict:
        """Grade within one stage of a scoring, and within `left_s` even if a sandbox is lost."""
        config = self.config
        stage_s = min(self.limits.score_timeout_s, self.limits.turn_timeout_s) / STAGES
        policy = Grading(
            problem.entry,
            problem.setup,
            config.timeout_s,
            config.float_tolerance,
            wait_s=stage_s,
            total_s=min(stage_s, left_s / (1 + RETRY)),
        )
        return await self.grader.grade(problem.program(answer), tests, policy, waiting)

    def _problems(self, split: str) -> list[Problem]:
        if not self.config.data_heldout:
            return [p for p in load(self.config.data) if self._is_held_out(p) == (split == "test")]
        held_out = load(self.config.data_heldout)
        unseen = {problem.key for problem in held_out}
        return held_out if split == "test" else [p for p in load(self.config.data) if p.key not in unseen]

    def _is_held_out(self, problem: Problem) -> bool:
        return is_in_share(" ".join(problem.key.split()), self.config.heldout_share)


_EQUAL = """class Same(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __str__(self): return "passed"
{head}    return Same()
print(Same())
"""
_LOOK = """import gc, sys
{head}    frame, found = sys._getframe(), []
    while frame:
        found += [frame.f_locals.get(name) for name in ("expected", "wanted", "want", "gold", "answer")]
        frame = frame.f_back
    found += [x["expected"] for x in gc.get_objects() if type(x) is dict and "expected" in x]
    return next((x for x in found if x is not None), None)
"""


def _left_s(ctx: Context) -> float:
    """Return what is left of the episode's tool time, which includes trying programs."""
    return ctx.tool_time.limit_s - ctx.tool_time.spent_s


def _signal(name: str, verdict: Verdict, value: float | None) -> Signal:
    """Return a reward: 0 if the program prevented a verdict, invalid if the program is not at fault."""
    if verdict.fault == "program" and not verdict.valid:
        value = 0.0
    return Signal(name, value, valid=value is not None, reason=verdict.reason, evidence=verdict.status.value)


def _block(program: str) -> str:
    return f"```python\n{program}\n```"


def _named(problem: Problem) -> str:
    return next((test.function for test in problem.hidden if isinstance(test, Call)), "f")


def _by_heart(head: str, public: tuple[Test, ...]) -> str:
    """Return a program that has memorised the public tests."""
    calls = {repr(tuple(test.args)): test.expected for test in public if isinstance(test, Call)}
    texts = {test.stdin: test.expected_stdout for test in public if isinstance(test, Io)}
    if texts:
        return f"import sys\nprint({texts!r}.get(sys.stdin.read(), ''))\n"
    return f"{head}    return {calls!r}.get(repr(args))\n"


def _task(problem: Problem) -> Task:
    return Task(hashlib.sha256(problem.key.encode()).hexdigest()[:12], problem)


def _drawn(level: int) -> Callable[[random.Random], Task]:
    return lambda rng: _task(generator.problem(level, rng))
