"""`agentrl replay RUN`: train stored trajectories again and compare the weights."""

from __future__ import annotations

from agentrl.cli.flags import Parser, path, whole

MEANING = """\
Train the stored trajectories of a run again, from the nearest checkpoint, and compare the weights after every step with
those that the run recorded. The weights are equal to the last bit on the same kind of CPU and GPU, with the same number
of threads and the same versions of the libraries; any other CPU, number or version is refused, and if weights differ,
the error names the GPUs. Nothing in the run folder changes."""


def run(words: list[str]) -> int:
    """Replay the run in a folder."""
    parser = Parser(prog="agentrl replay", description=MEANING)
    parser.add_argument("run", type=path, metavar="RUN", help="the run folder")
    parser.add_argument(
        "--step", type=whole(1), metavar="N", help="the last step to replay (default: the run's last one)"
    )
    parsed = parser.parse_args(words)
    from agentrl.training.launch import replay

    replay(parsed.run, parsed.step)
    return 0
