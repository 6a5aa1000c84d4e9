"""Train from Python in an environment that the script itself defines, then read the run.

python examples/train_from_python.py --steps 20
"""
# ruff: noqa: D102

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import Any

from pydantic import Field

import agentrl
from agentrl.env import Context, Env, EnvConfig, Message, Task, Tasks, reward


class ParityConfig(EnvConfig):
    """The keys of `env_options`."""

    digits: int = Field(2, ge=1, le=9, description="digits of a number")


class Parity(Env):
    """One turn: is a number even or odd?"""

    Config = ParityConfig
    config: ParityConfig
    blocking = False

    def tasks(self, split: str) -> Tasks:
        numbers = random.Random(split).sample(range(10**self.config.digits), 8)
        return [Task(str(number), number) for number in numbers]

    def setup(self, task: Task, ctx: Context) -> list[Message]:  # noqa: ARG002
        return [Message(role="user", content=f"Is {task.data} even or odd? Answer with one word.")]

    @reward
    def right(self, ctx: Context) -> float:
        return float(("odd" if ctx.task.data % 2 else "even") in ctx.text.lower())


def settings(words: Sequence[str] | None = None) -> dict[str, Any]:
    """The arguments of `agentrl.train` that a command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="training steps")
    parser.add_argument("--digits", type=int, default=2, help="digits of a number")
    parser.add_argument("--model", help="a folder or hub id (default: chosen for this machine)")
    parser.add_argument("--out", help="the run folder (default: under ./runs)")
    parsed = parser.parse_args(words)
    return {
        "env": Parity,
        "env_options": {"digits": parsed.digits},
        "model": parsed.model,
        "out": parsed.out,
        "steps": parsed.steps,
        "prompts": 4,
        "max_tokens": 8,
        "eval": {"tasks": 8, "samples": 4},
    }


def main() -> None:
    """Train, and print what the run folder says."""
    run = agentrl.train(**settings())
    for step in run.steps:
        print(f"step {step.step}: reward {step.reward_mean:.2f}, {step.length_mean:.0f} tokens")
    before, after = run.evaluations[0], run.evaluations[-1]
    print(f"pass@1 {before.pass_at_1.mean:.2f} before, {after.pass_at_1.mean:.2f} after")
    print(f"trajectories: {agentrl.export(run.path)}")


if __name__ == "__main__":
    main()
