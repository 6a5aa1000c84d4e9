"""`agentrl env eval NAME`: the score of a model on the held-out tasks of one environment."""

from __future__ import annotations

from agentrl.cli import eval as evaluation
from agentrl.cli.flags import Parser


def run(words: list[str]) -> int:
    """Evaluate as `agentrl eval --env NAME` does."""
    parser = Parser(
        prog="agentrl env eval",
        usage="agentrl env eval NAME [MODEL] [options of agentrl eval]",
        description="Score a model on the held-out tasks of an environment; `agentrl eval --help` has all options.",
    )
    parser.add_argument("name", metavar="NAME", help="an installed environment, a file or a folder")
    name = parser.parse_args(words[:1] or ["--help"]).name
    return evaluation.run([*words[1:], "--env", name])
