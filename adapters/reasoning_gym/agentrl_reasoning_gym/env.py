"""The environment: a question of a dataset, one response, and the score of the library."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Literal, Self, cast

import re2
from agentrl_sandbox import UnavailableError, describe
from pydantic import Field, create_model

from agentrl.env import Adapter, Context, EnvConfig, Limits, Message, Policy, Task, reward, shared
from agentrl.errors import ConfigError, UnknownNameError
from agentrl_reasoning_gym.entries import generated, tasks_of
from agentrl_reasoning_gym.library import NAMES, SYSTEM_PROMPTS, dataset, extract_answer, keys_of
from agentrl_reasoning_gym.sandboxed import PACKAGES, SandboxedScorer
from agentrl_reasoning_gym.scoring import SYMBOLIC, Scorer

NUMBER = re2.compile(r"-?(?:\d{1,3}(?:,\d{3})+\b|\d+)(?:\.\d+)?")
NEARLY = 1 - 1e-6
"""What only a right answer earns: its score is 1 up to rounding."""


class ReasoningGymConfig(EnvConfig):
    """The `--env.*` keys of every dataset; those of the dataset itself come after them."""

    size: int = Field(1000, ge=2, description="entries to generate; repeated questions count once")
    seed: int = Field(0, ge=0, description="seed of the entries")
    heldout_share: float = Field(0.1, gt=0, lt=1, description='share of the questions that belong to "test"')
    system: str = Field(SYSTEM_PROMPTS["simple"], description="system message; '' sends none")
    answer_in: Literal["tags", "response", "number"] = Field(
        "tags", description="what is scored: the text between the tags, the whole response, or its last number"
    )


class ReasoningGym(Adapter):
    """Answer a question of a dataset of reasoning-gym between <answer> and </answer>; its own scorer pays 0 to 1."""

    Config = ReasoningGymConfig
    config: ReasoningGymConfig
    limits = Limits(load_timeout_s=600, score_timeout_s=120)
    wraps = ("reasoning-gym",)
    solved_reward = 1.0

    @classmethod
    def bound(cls, name: str) -> type[Self]:
        """Return the class of the dataset `name`, whose settings are `--env.*` keys."""
        if name not in NAMES:
            raise UnknownNameError("dataset of reasoning-gym", name, NAMES)
        keys: dict[str, Any] = {key: (hint, default) for key, hint, default in keys_of(name)}
        return cls.subclass(name, Config=create_model("ReasoningGymConfig", __base__=cls.Config, **keys))

    def preflight(self) -> str:
        """Describe the sandboxes, if this dataset needs them. Raises ConfigError without one, and for invalid keys."""
        try:
            dataset(self.id, self.keys())
        except (AssertionError, ValueError) as error:
            raise ConfigError(f"rg:{self.id}: {error}; see the --env.* keys") from error
        return f"rg:{self.id}: scored in {self._sandboxes()}." if self.id in SYMBOLIC else ""

    def _sandboxes(self) -> str:
        try:
            return describe(packages=PACKAGES)
        except UnavailableError as error:
            raise ConfigError(f"rg:{self.id}: its scorer executes answers, so it needs a sandbox: {error}") from error

    def keys(self) -> dict[str, Any]:
        """Return the settings of the dataset that were set."""
        own = ReasoningGymConfig.model_fields.keys()
        return {key: getattr(self.config, key) for key in self.config.model_fields_set - own}

    @shared
    def splits(self) -> Mapping[str, list[Task]]:
        """Generate the tasks of both splits."""
        made = generated(self.id, self.keys(), self.config.seed, self.config.size, self.limits.load_timeout_s)
        return tasks_of(self.id, made, self.config.heldout_share)

    @shared
    def scorer(self) -> Scorer | SandboxedScorer:
        """Make the scorer, in sandboxes if it executes answers."""
        return (SandboxedScorer if self.id in SYMBOLIC else Scorer)(self.id, self.keys())

    def tasks(self, split: str) -> list[Task]:
        """Return the tasks of a split."""
        return self.splits[split]

    def setup(self, task: Task, ctx: Context) -> list[Message]:  # noqa: ARG002
        """Return the system message and the question."""
        system = [Message(role="system", content=self.config.system)] if self.config.system else []
        return [*system, Message(role="user", content=str(task.data["question"]))]

    @reward
    def score_answer(self, ctx: Context) -> float | Awaitable[float]:
        """Return the library's score of the answer in the response; see `answer_in`."""
        return self.scorer(self._answer(ctx.text), ctx.task.data)

    def success(self, ctx: Context) -> bool:
        """Return whether the answer is right: what is close earns a part of the reward, half in some datasets."""
        return all((signal.value or 0.0) > NEARLY for signal in ctx.signals)

    def _answer(self, text: str) -> str | None:
        if self.config.answer_in == "tags":
            return cast("str | None", extract_answer(text))
        if self.config.answer_in == "response":
            return text.strip()
        numbers = NUMBER.findall(text)
        return numbers[-1].replace(",", "") if numbers else None

    def oracle(self, task: Task) -> Policy | None:
        """Return the answer of the entry, None for a dataset whose scorer accepts whatever solves the task."""
        if task.data["answer"] is None:
            return None
        answer = str(task.data["answer"])
        return [f"<answer>{answer}</answer>" if self.config.answer_in == "tags" else answer]

    def canaries(self, task: Task) -> Mapping[str, Policy]:  # noqa: ARG002
        """Return policies that respond without answering."""
        silent = {"silence": [""]}
        return silent | {"no tags": ["The answer is 1."]} if self.config.answer_in == "tags" else silent
