"""`agentrl train`: one run from its first task to its report."""

from __future__ import annotations

from agentrl.cli.ending import exit_code
from agentrl.cli.flags import ENV, parse
from agentrl.config.loading import load
from agentrl.config.machine import detect
from agentrl.config.resolve import explain, resolve_run
from agentrl.records.checkpoints import of_newest
from agentrl.records.folder import check_out


def run(words: list[str]) -> int:
    """Train as the flags say. What the environment lacks is told before torch is loaded."""
    machine = detect()
    config = resolve_run(of_newest(load(*parse("train", "Train a model in an environment.", words, ENV))), machine)
    check_out(config.out)
    from agentrl.training.inputs import RunInputs

    inputs = RunInputs.of(config)
    print(f"{explain(config, machine)}\n", flush=True)
    inputs.tell()
    from agentrl.metrics.timer import process_began
    from agentrl.training.loop import train

    return exit_code(lambda: train(config, inputs, process_began()))
