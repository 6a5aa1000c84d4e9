"""`agentrl export RUN`: the trajectories of a run in a file that other tools read."""

from __future__ import annotations

from agentrl.cli.flags import Parser, path, whole
from agentrl.report.export import FORMATS, export


def run(words: list[str]) -> int:
    """Write the trajectories and print the file's path."""
    parser = Parser(prog="agentrl export", description="Write a run's trajectories as JSON lines or Parquet.")
    parser.add_argument("run", type=path, metavar="RUN", help="the run folder")
    parser.add_argument("--out", type=path, metavar="FILE", help="the file (default: RUN/trajectories.jsonl)")
    parser.add_argument(
        "--format", choices=list(FORMATS), help="the format (default: by the suffix of --out, else jsonl)"
    )
    parser.add_argument(
        "--evaluation", type=whole(0), metavar="STEP", help="export the evaluation after this step (default: training)"
    )
    parsed = parser.parse_args(words)
    print(export(parsed.run, parsed.out, parsed.format, parsed.evaluation))
    return 0
