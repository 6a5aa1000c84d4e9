"""`agentrl eval`: the score of a model on held-out tasks."""

from __future__ import annotations

from agentrl.cli.flags import MODEL, parse
from agentrl.training.eval_config import FLAGS, evaluation_config

MEANING = """\
Score a model on held-out tasks: a folder, a checkpoint, a hub id, or a run (its newest checkpoint; the last lines
of a run name its best one).
A run's model is scored in the run's environment with the run's settings; --env or --config override that."""


def run(words: list[str]) -> int:
    """Evaluate as the flags say."""
    config = evaluation_config(*parse("eval", MEANING, words, MODEL, FLAGS))
    from agentrl.metrics.timer import process_began
    from agentrl.training.launch import evaluate

    evaluate(config, process_began())
    return 0
