"""The environment: one question, one response, and the verdict of the verifier."""
# ruff: noqa: ARG002  (setup and the policies need not know the context)

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

from agentrl_tools import sandboxes, split_names, toolsets, where
from pydantic import Field, field_validator, model_validator

from agentrl.env import (
    Context,
    Env,
    EnvConfig,
    Limits,
    Message,
    Policy,
    QuestionTemplate,
    Signal,
    Task,
    Tasks,
    folders_apart,
    reward,
    shared,
)
from agentrl_math import generator
from agentrl_math.data import Row, Source, is_held_out
from agentrl_math.extract import from_gold
from agentrl_math.grading import averify
from agentrl_math.pool import Pool
from agentrl_math.shots import LEVELS, shots, shown

ASK_FOR_A_BOX = "{question}\n\nPut the final answer in \\boxed{}."
TOOLS = "comma-separated tools for the model: calculator, python, shell, files, mcp:COMMAND, http:HOST,HOST"
TOOL_TIMEOUT_S = 180.0
"""Time limit of a call, including the wait for a sandbox."""


class MathConfig(EnvConfig):
    """The `--env.*` options: source of the tasks, their prompts, and the policy of the verifier."""

    level: Literal[1, 2, 3, 4] = Field(1, description="1: one digit; 2: two digits; 3: several steps; 4: word problems")
    data: str = Field("", description="a JSONL, JSON or Parquet file, or a Hugging Face dataset id, instead of a level")
    data_heldout: str = Field("", description="the same for the held-out tasks; '' holds out a share of `data`")
    data_subset: str = Field("", description="configuration of the Hugging Face dataset")
    heldout_share: float = Field(0.05, gt=0, lt=1, description="share of `data` held out when `data_heldout` is ''")
    question_column: str = Field("", description="column of the question; '' finds those of GSM8K and MATH")
    answer_column: str = Field("", description="column of the gold; '' finds those of GSM8K and MATH")
    system: str = Field("", description="system message; '' sends none")
    template: QuestionTemplate = Field(
        "", description="user message that contains {question}; '' asks for a box if `data` is set"
    )
    form: Literal["auto", "any", "value"] = Field("auto", description="auto: value for levels, any for `data`")
    percent: Literal["optional", "value", "required"] = Field("optional", description="see agentrl_math.Policy")
    units: Literal["optional", "required", "ignore"] = Field("optional", description="see agentrl_math.Policy")
    rounding: Literal["exact"] | int | float = Field("exact", description="exact, decimals, or a relative tolerance")
    order: Literal["auto", "strict", "free"] = Field("auto", description="see agentrl_math.Policy")
    box: Literal["last", "first", "only", "all"] = Field("last", description="which \\boxed counts")
    think: Literal["auto", "open", "ignore"] = Field("auto", description="see agentrl_math.Policy")
    fallback: Literal["auto", "none", "number"] = Field(
        "auto", description="what counts if nothing is marked; auto: number for levels, none for `data`"
    )
    tools: tuple[str, ...] = Field((), description=TOOLS)
    packages: tuple[str, ...] = Field(
        (), description="installed packages that python and shell can import: numpy,sympy"
    )
    turns: int = Field(8, ge=2, description="turns of an episode with tools; without tools there is one turn")
    shots: int = Field(0, ge=0, le=8, description="worked examples of calls before the question, for levels 1 to 3")

    @field_validator("tools", mode="before")
    @classmethod
    def _split_tools(cls, names: Any) -> Any:
        return split_names(names) if isinstance(names, str) else names

    @model_validator(mode="after")
    def _check_tools(self) -> Self:
        toolsets(self.tools, self.packages)
        return self

    @model_validator(mode="after")
    def _check_shots(self) -> Self:
        if self.shots and shown(self.tools) is None:
            raise ValueError("shots demonstrate calls of calculator or python: add one of them to tools")
        if self.shots and (self.data or self.level not in LEVELS):
            raise ValueError("shots exist only for levels 1 to 3: set shots to 0 for other questions")
        return self


POLICY_KEYS = ("percent", "units", "rounding", "order", "box", "think")


class MathEnv(Env):
    """Answer a question: reward 1 if the answer equals the gold, else 0; invalid if that cannot be determined."""

    Config = MathConfig
    config: MathConfig
    limits = Limits(score_timeout_s=120)
    blocking = False

    def __init__(self, config: EnvConfig | None = None, **options: Any) -> None:
        super().__init__(config, **options)
        if self.config.tools:
            self.limits = replace(self.limits, max_turns=self.config.turns, tool_timeout_s=TOOL_TIMEOUT_S)

    @shared
    def pool(self) -> Pool:
        """Create the verifier processes of this worker."""
        return Pool()

    @shared
    def sandboxes(self) -> AbstractAsyncContextManager[None]:
        """Keep the sandboxes of the tools until this worker ends."""
        return sandboxes()

    def preflight(self) -> str:
        """Describe the sandboxes of the tools; DataError if the data cannot be read."""
        if self.config.data:
            self._rows("train")  # reads both files
        return where(self.config.tools, self.config.packages)

    async def tasks(self, split: str) -> Tasks:
        """Return endless draws for "train" and a fixed list for "test"; with `data`, the rows of the split."""
        if self.config.data:
            return await asyncio.to_thread(self._rows, split)
        if split == "test":
            return [_task(self.config.level, problem) for problem in generator.held_out_problems(self.config.level)]
        return _drawn(self.config.level)

    def tools(self, ctx: Context) -> list[object]:
        """Return the tools that `--env.tools` names."""
        return toolsets(self.config.tools, self.config.packages)

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Return the system message and the worked examples, if any, and the question."""
        template = self.config.template or (ASK_FOR_A_BOX if self.config.data else "{question}")
        system = [Message(role="system", content=self.config.system)] if self.config.system else []
        examples = shots(self.config.level, self.config.shots, shown(self.config.tools) or "")
        return [*system, *examples, Message(role="user", content=template.replace("{question}", task.data.question))]

    @reward
    async def correct(self, ctx: Context) -> Signal:
        """Return the verdict on the response."""
        verdict = await averify(ctx.text, ctx.task.data.answer, pool=self.pool, **self._policy())
        return Signal("correct", verdict.reward, valid=verdict.valid, reason=verdict.reason, evidence=verdict.extracted)

    def oracle(self, task: Task) -> Policy:
        """Return the gold, boxed."""
        return [f"{self._opened()}\\boxed{{{from_gold(task.data.answer)}}}"]

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Return policies that respond without answering."""
        gold, question = from_gold(task.data.answer), task.data.question
        if self._form() == "value":  # otherwise an expression is an answer to the question for its value
            question = question.removeprefix("What is ").rstrip("?")
        turns = {
            "silence": "",
            "junk": "I am not sure, but it is surely a fine number.",
            "every number": ", ".join(map(str, range(500))),
            "every number boxed": f"\\boxed{{{', '.join(map(str, range(150)))}}}",
            "an empty box": f"It is {gold}: \\boxed{{}}",
            "still thinking": f"<think>It is \\boxed{{{gold}}}",
            "the question boxed": f"\\boxed{{{question}}}",
            "code": "\\boxed{__import__('os').getpid()}",
        }
        return {name: [self._opened() + text] for name, text in turns.items()}

    def _opened(self) -> str:
        return "</think>" if self.config.think == "open" else ""

    def _form(self) -> str:
        if self.config.form != "auto":
            return self.config.form
        return "any" if self.config.data else "value"

    def _fallback(self) -> str:
        """Return the fallback policy; levels request no mark, so the last number of a small model is its answer."""
        if self.config.fallback != "auto":
            return self.config.fallback
        return "none" if self.config.data else "number"

    def _policy(self) -> dict[str, str | int | float]:
        same = {key: getattr(self.config, key) for key in POLICY_KEYS}
        return {**same, "form": self._form(), "fallback": self._fallback()}

    def _rows(self, split: str) -> list[Task]:
        held_out = self._source(self.config.data_heldout).rows() if self.config.data_heldout else None
        files = [Path(name).expanduser() for name in (self.config.data, self.config.data_heldout)]
        if held_out is not None and split == "test":
            folders = folders_apart(*reversed(files))
            return [Task(folders + row.location, row) for row in held_out]
        rows, unseen = self._source(self.config.data).rows(), {row.question for row in held_out or ()}
        folders = folders_apart(*files)
        return [Task(folders + row.location, row) for row in rows if self._is_in(row, split, unseen)]

    def _is_in(self, row: Row, split: str, unseen: set[str]) -> bool:
        if self.config.data_heldout:
            return row.question not in unseen
        return is_held_out(row.question, self.config.heldout_share) == (split == "test")

    def _source(self, name: str) -> Source:
        return Source(name, self.config.question_column, self.config.answer_column, self.config.data_subset)


def _task(level: int, problem: generator.Problem) -> Task:
    return Task(f"level{level}/{problem.question}", problem)


def _drawn(level: int) -> Callable[[random.Random], Task]:
    return lambda rng: _task(level, generator.problem(level, rng))
