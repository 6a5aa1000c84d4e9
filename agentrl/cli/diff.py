"""`agentrl diff RUN RUN`: the answers of two evaluations to the same tasks, side by side."""

from __future__ import annotations

from agentrl.cli.flags import Parser, path
from agentrl.report.diff import lines
from agentrl.training.comparison import compare, sides_of, write_page

MEANING = """\
Compare the answers of two evaluations to the same tasks: print which tasks became worse or better, and write a page
with the answers side by side. RUN stands for the last evaluation of a run, RUN@STEP for the one after a step; a single
RUN compares its first evaluation with its last. `agentrl eval CHECKPOINT` makes an evaluation of a checkpoint."""


def run(words: list[str]) -> int:
    """Print the comparison and write its page."""
    parser = Parser(prog="agentrl diff", description=MEANING)
    parser.add_argument("runs", nargs="+", metavar="RUN[@STEP]", help="one or two run folders")
    parser.add_argument("--out", type=path, metavar="FILE", help="the page (default: diff.html in the second run)")
    given = parser.parse_args(words)
    first, second = sides_of(given.runs)
    found = compare(first, second)
    print("\n".join(lines(found)), flush=True)
    file = given.out or second.folder.path / "diff.html"
    write_page(found, file)
    print(f"\nanswers side by side: {file}")
    return 0
