"""`agentrl eval`: the score of a model on held-out tasks."""

from __future__ import annotations

from agentrl.cli.ending import exit_code
from agentrl.cli.flags import MODEL, parse
from agentrl.config.machine import detect
from agentrl.config.resolve import resolve_run
from agentrl.records.folder import check_out
from agentrl.training.eval_config import FLAGS, evaluation_config


def run(words: list[str]) -> int:
    """Evaluate as the flags say."""
    meaning = (
        "Score a model on held-out tasks: a folder, a checkpoint, a hub id, or a run (its newest checkpoint).\n"
        "What a run wrote is scored in that run's environment, with its settings, unless --env or --config says more."
    )
    config = resolve_run(evaluation_config(*parse("eval", meaning, words, MODEL, FLAGS)), detect())
    check_out(config.out)
    from agentrl.training.inputs import RunInputs
    from agentrl.types import HELD_OUT

    inputs = RunInputs.of(config, HELD_OUT)
    inputs.tell()
    from agentrl.metrics.timer import process_began
    from agentrl.training.loop import evaluate

    return exit_code(lambda: evaluate(config, inputs, process_began()))
