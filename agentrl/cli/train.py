"""`agentrl train`: one run from its first task to its report."""

from __future__ import annotations

from agentrl.cli.ending import exit_code
from agentrl.cli.flags import ENV, parse
from agentrl.config.machine import detect
from agentrl.config.resolve import choose
from agentrl.records.checkpoints import of_newest
from agentrl.records.folder import check_out


def run(words: list[str]) -> int:
    """Train as the flags say. What the environment lacks is told before torch is loaded."""
    settings = parse("train", "Train a model in an environment.", words, ENV)
    plan = choose(of_newest(settings.config), detect())
    check_out(plan.config.out)
    from agentrl.training.inputs import RunInputs

    inputs = RunInputs.of(plan.config)
    print(f"{plan.explanation}\n", flush=True)
    inputs.tell()
    from agentrl.metrics.timer import process_began
    from agentrl.training.loop import train

    return exit_code(lambda: train(plan.config, inputs, process_began()))
