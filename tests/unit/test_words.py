"""What users and readers see is English that people speak: no word or phrase of the list below (STYLE.md).

Read are docs, docstrings, comments, and strings with a space in them: help, descriptions, messages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.house.source import ROOT

PHRASES = (
    r"whoever|whomever|whatsoever",
    r"told|tells|untold",
    r"lies|lie (?:in|there|under)|lay there",
    r"dear|dearer|dearest",
    r"(?:came|comes|come|became|becomes|become) of",
    r"(?:came|comes) to(?! (?:an end|a stop|rest))",
    r"anew|hereby|thereof|wherein|the like|for want of",
    r"(?:brings?|brought) about",
    r"stands(?! (?:for|alone|between|in for))",
    r"(?:is|are|was|be|been|more|nothing) said",
    r"(?:for|in|to|of|from|by) who",
    r"wants an?|who wants",
    r"behind (?:what|every|it or not|the (?:name|number|fence|box))",
    r"at its end|in its stead|of before",
)
WORDS = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
POINTER = re.compile(r"See (?:the )?[`\w.:]+\.?")  # a docstring that says only where to look
ALLOWED: dict[str, set[str]] = {}  # what a file says rightly: it quotes a model or a verifier's vocabulary
# How many such phrases each file still has: they may only become fewer.
DEBTS: dict[str, int] = {
    "Makefile": 1,
    "README.md": 5,
    "agentrl/cluster/actors.py": 1,
    "agentrl/cluster/engines.py": 1,
    "agentrl/cluster/processes.py": 4,
    "agentrl/cluster/ray.py": 1,
    "agentrl/cluster/roles.py": 16,
    "agentrl/cluster/scratch.py": 2,
    "agentrl/cluster/workers.py": 3,
    "agentrl/engine/client.py": 1,
    "agentrl/engine/protocol.py": 1,
    "agentrl/engine/scripted.py": 2,
    "agentrl/engine/vllm.py": 4,
    "agentrl/env/base.py": 1,
    "agentrl/env/context.py": 1,
    "agentrl/env/definition.py": 1,
    "agentrl/env/driver/resources.py": 2,
    "agentrl/env/driver/threads.py": 1,
    "agentrl/env/driver/toolcalls.py": 3,
    "agentrl/env/files.py": 4,
    "agentrl/env/gymnasium.py": 4,
    "agentrl/env/registry.py": 1,
    "agentrl/env/rows.py": 1,
    "agentrl/env/tasks.py": 1,
    "agentrl/env/tools.py": 4,
    "agentrl/env/tracebacks.py": 1,
    "agentrl/env/tryout/observed.py": 1,
    "agentrl/env/tryout/unpaid.py": 2,
    "agentrl/env/tryout/verdict.py": 3,
    "agentrl/errors.py": 1,
    "agentrl/learner/deepspeed.py": 2,
    "agentrl/rollout/boundary.py": 1,
    "agentrl/rollout/episode.py": 2,
    "agentrl/rollout/parsing.py": 2,
    "agentrl/rollout/renderer.py": 8,
    "agentrl/rollout/scheduler.py": 2,
    "agentrl/training/publication.py": 1,
    "agentrl/training/setup.py": 2,
    "agentrl/weights/collective.py": 1,
    "agentrl/weights/receiver.py": 2,
    "agentrl/weights/staging.py": 1,
    "benchmarks/growth.py": 2,
    "benchmarks/rival.py": 1,
    "benchmarks/versus_trl.py": 1,
    "docs/README.md": 1,
    "docs/architecture.md": 4,
    "docs/learning.md": 3,
    "docs/migrate-from-openrlhf.md": 1,
    "docs/operate.md": 3,
    "docs/performance.md": 1,
    "docs/sandbox.md": 5,
    "docs/share-an-env.md": 1,
    "docs/tools.md": 5,
    "docs/train.md": 3,
    "docs/when-it-does-not-learn.md": 2,
    "docs/write-an-env.md": 7,
    "envs/code/README.md": 2,
    "envs/code/agentrl_code/claims.py": 1,
    "envs/code/agentrl_code/compare.py": 1,
    "envs/code/agentrl_code/data.py": 1,
    "envs/code/agentrl_code/dialogue.py": 1,
    "envs/code/agentrl_code/extract.py": 4,
    "envs/code/agentrl_code/grader.py": 1,
    "envs/code/agentrl_code/grading.py": 1,
    "envs/code/agentrl_code/inside/candidate.py": 1,
    "envs/code/agentrl_code/inside/standins.py": 2,
    "envs/code/agentrl_code/replies.py": 2,
    "envs/code/agentrl_code/scripts.py": 1,
    "envs/code/agentrl_code/show.py": 1,
    "envs/code/agentrl_code/trial.py": 2,
    "envs/code/agentrl_code/verdict.py": 3,
    "envs/code/agentrl_code/workers.py": 1,
    "envs/functions/agentrl_functions/generator.py": 1,
    "envs/guess/agentrl_guess/env.py": 1,
    "envs/math/README.md": 2,
    "envs/math/agentrl_math/beside.py": 1,
    "envs/math/agentrl_math/context.py": 2,
    "envs/math/agentrl_math/data.py": 1,
    "envs/math/agentrl_math/evaluation.py": 2,
    "envs/math/agentrl_math/extract.py": 2,
    "envs/math/agentrl_math/fallback.py": 1,
    "envs/math/agentrl_math/neighbours.py": 2,
    "envs/math/agentrl_math/numeric.py": 1,
    "envs/math/agentrl_math/policy.py": 1,
    "envs/math/agentrl_math/settled.py": 1,
    "envs/math/agentrl_math/units.py": 1,
    "envs/search/agentrl_search/world.py": 2,
    "sandbox/agentrl_sandbox/__init__.py": 2,
    "sandbox/agentrl_sandbox/answer.py": 1,
    "sandbox/agentrl_sandbox/backends/bubblewrap.py": 3,
    "sandbox/agentrl_sandbox/blame.py": 1,
    "sandbox/agentrl_sandbox/boot.py": 1,
    "sandbox/agentrl_sandbox/budget.py": 2,
    "sandbox/agentrl_sandbox/cgroups.py": 2,
    "sandbox/agentrl_sandbox/channel.py": 1,
    "sandbox/agentrl_sandbox/gc.py": 1,
    "sandbox/agentrl_sandbox/http.py": 1,
    "sandbox/agentrl_sandbox/image/rootfs.py": 1,
    "sandbox/agentrl_sandbox/inside/__init__.py": 1,
    "sandbox/agentrl_sandbox/inside/child.py": 1,
    "sandbox/agentrl_sandbox/inside/files.py": 1,
    "sandbox/agentrl_sandbox/inside/job.py": 2,
    "sandbox/agentrl_sandbox/inside/proc.py": 3,
    "sandbox/agentrl_sandbox/inside/programs.py": 3,
    "sandbox/agentrl_sandbox/inside/warden.py": 4,
    "sandbox/agentrl_sandbox/leases.py": 2,
    "sandbox/agentrl_sandbox/ordered.py": 2,
    "sandbox/agentrl_sandbox/packages.py": 1,
    "sandbox/agentrl_sandbox/pool.py": 3,
    "sandbox/agentrl_sandbox/server.py": 5,
    "sandbox/agentrl_sandbox/types.py": 1,
}
SOURCES = ("agentrl", "sandbox/agentrl_sandbox", "tools/agentrl_tools", "envs/*/agentrl_*", "benchmarks", "examples")
TEXTS = ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "docs/**/*.md", "envs/*/README.md", "scripts/*")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Phrase:
    """One phrase that nobody says, and where."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def phrases(root: Path) -> list[Phrase]:
    """Every such phrase below `root`, except what its file is allowed."""
    files = [path for each in SOURCES for folder in sorted(root.glob(each)) for path in sorted(folder.rglob("*.py"))]
    files += [path for each in TEXTS for path in sorted(root.glob(each)) if path.is_file()]
    found = []
    for path in files:
        name = path.relative_to(root).as_posix()
        read = spoken if path.suffix == ".py" else written
        for line, text in read(path.read_text(encoding="utf-8")):
            matches = POINTER.fullmatch(text.strip()) if path.suffix == ".py" else None
            for match in filter(None, (matches, *WORDS.finditer(text))):
                if match[0].lower() not in ALLOWED.get(name, ()):
                    found.append(Phrase(name, line + text.count("\n", 0, match.start()), match[0]))
    return found


def spoken(code: str) -> Iterator[tuple[int, str]]:
    """Docstrings, strings with a space, and comments of Python code, each with its line."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def written(page: str) -> Iterator[tuple[int, str]]:
    """A page, without its blocks of code but with the comments in them."""
    yield 1, FENCE.sub(_comments, page)


def _comments(block: re.Match[str]) -> str:
    return "\n".join(line[line.find(" #") :] if " #" in f" {line}" else "" for line in block[0].split("\n"))


def test_no_more_phrases_that_nobody_says() -> None:
    found = phrases(ROOT)
    over = {path: count for path, count in Counter(p.path for p in found).items() if count > DEBTS.get(path, 0)}
    assert [str(phrase) for phrase in found if phrase.path in over] == []


def test_what_a_file_is_allowed_it_says() -> None:
    for name, allowed in ALLOWED.items():
        text = (ROOT / name).read_text(encoding="utf-8").lower()
        assert [phrase for phrase in allowed if phrase not in text] == [], name


PLANTED = [
    ('"""What came of it."""', 1, "came of"),
    ('def f():\n    """One.\n\n    Whoever asks is told.\n    """', 4, "Whoever"),
    ('raise ValueError(f"the {name} lies there")', 1, "lies"),
    ('x = Field(0, description="dear: made once")', 1, "dear"),
    ("x = 1  # what it comes to", 1, "comes to"),
    ('def f():\n    """See `Engine.start`."""', 2, "See `Engine.start`."),
]


@pytest.mark.parametrize(("code", "line", "text"), PLANTED)
def test_a_planted_phrase_is_found_in_code(tmp_path: Path, code: str, line: int, text: str) -> None:
    plant(tmp_path, "agentrl/a.py", code)
    assert str(phrases(tmp_path)[0]) == f"agentrl/a.py:{line}: {text}"


def test_a_planted_phrase_is_found_in_a_page_and_in_the_comments_of_its_code(tmp_path: Path) -> None:
    plant(tmp_path, "docs/a.md", "One.\n\n```python\ntold = 1  # begin anew\n```\n\nAt its end\nlies it.")
    assert list(map(str, phrases(tmp_path))) == ["docs/a.md:4: anew", "docs/a.md:7: At its end", "docs/a.md:8: lies"]


def test_names_and_plain_sentences_are_no_phrases(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/a.py", 'told = {"lies": 1}\n"""It stands for a run. See the docs for more."""')
    plant(tmp_path, "docs/a.md", "```python\ntold = lies\n```\nThe run comes to an end; `x` stands for it.")
    assert phrases(tmp_path) == []


def plant(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")
