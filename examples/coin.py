"""The smallest environment: call a biased coin.

agentrl train --env ./examples/coin.py --env.heads 0.9
"""
# ruff: noqa: D102

from __future__ import annotations

import random

from pydantic import Field

from agentrl.env import Context, Env, EnvConfig, Message, Policy, Task, Tasks, reward


class CoinConfig(EnvConfig):
    """The `--env.*` keys."""

    heads: float = Field(0.8, ge=0, le=1, description="how often the coin shows heads")


class Coin(Env):
    """One turn; always calling the likelier side pays as often as that side comes."""

    Config = CoinConfig
    config: CoinConfig
    blocking = False

    def tasks(self, split: str) -> Tasks:
        return [Task("test", "heads")] if split == "test" else self.flip

    def flip(self, rng: random.Random) -> Task:
        side = "heads" if rng.random() < self.config.heads else "tails"
        return Task(f"flip-{rng.getrandbits(32):08x}", side)

    def setup(self, task: Task, ctx: Context) -> list[Message]:  # noqa: ARG002
        return [Message(role="user", content="I flip a coin. Heads or tails? Answer with one word.")]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip().lower().rstrip(".!") == ctx.task.data)

    def oracle(self, task: Task) -> Policy:
        return [task.data]

    def canaries(self, task: Task) -> dict[str, Policy]:  # noqa: ARG002
        return {"both sides": ["heads or tails"], "the edge": ["edge"]}
