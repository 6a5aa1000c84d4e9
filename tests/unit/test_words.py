"""What users and readers see is English that people speak: no word or phrase of the list below (STYLE.md).

Read are docs, docstrings, comments, and strings with a space in them: help, descriptions, messages.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.house.source import ROOT, plant

PHRASES = (
    r"whoever|whomever|whatsoever",
    r"(?:told|tells)(?! (?:apart|the \w+ to|1,))|untold",
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
    r"in its stead|of before",
)
WORDS = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b", re.IGNORECASE)
POINTER = re.compile(r"See (?:the )?[`\w.:]+\.?")  # a docstring that says only where to look
ALLOWED = {  # what a file says rightly
    "envs/code/agentrl_code/inside/standins.py": {"behind the name"},
    "envs/search/agentrl_search/world.py": {"lies"},  # where a town is
}
SOURCES = (
    "agentrl",
    "sandbox/agentrl_sandbox",
    "tools/agentrl_tools",
    "envs/*/agentrl_*",
    "adapters/*/agentrl_*",
    "benchmarks",
    "verification",
    "examples",
)
TEXTS = (
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "pyproject.toml",
    "docs/**/*.md",
    "envs/*/README.md",
    "adapters/*/README.md",
    "scripts/*",
)
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


def test_no_phrases_that_nobody_says() -> None:
    assert [str(phrase) for phrase in phrases(ROOT)] == []


def test_every_allowed_phrase_is_used() -> None:
    for name, allowed in ALLOWED.items():
        text = (ROOT / name).read_text(encoding="utf-8").lower()
        assert [phrase for phrase in allowed if phrase not in text] == [], name


NO_VERBS = {"a", "all", "an", "each", "every", "how", "its", "no", "one", "that", "the", "these", "this", "those"}
NO_VERBS |= {"what", "when", "where", "whether", "which", "who", "whose", "why"}


def nouns(code: str) -> list[str]:
    """The functions, except properties, whose docstring begins with something else than a verb."""
    functions = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    found = []
    for node in functions:
        marks = [ast.unparse(mark).rpartition(".")[2] for mark in node.decorator_list]
        words = (ast.get_docstring(node) or "").split()
        if (
            words
            and words[0].strip(",:").lower() in NO_VERBS
            and not {"property", "cached_property", "shared"} & {*marks}
        ):
            found.append(node.name)
    return found


def test_the_docstring_of_a_function_begins_with_a_verb() -> None:
    files = [path for each in SOURCES[:4] for folder in ROOT.glob(each) for path in sorted(folder.rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): nouns(path.read_text(encoding="utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names and not path.startswith("envs/math/")} == {}


def test_a_docstring_that_begins_with_a_noun_is_found() -> None:
    assert nouns('def f():\n    """The sum."""\nasync def g():\n    """Whether it is one."""') == ["f", "g"]
    assert nouns('def f():\n    """Add."""\nclass A:\n    @property\n    def g(self):\n        """The sum."""') == []


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
    assert list(map(str, phrases(tmp_path))) == ["docs/a.md:4: anew", "docs/a.md:8: lies"]


def test_names_and_plain_sentences_are_no_phrases(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/a.py", 'told = {"lies": 1}\n"""It stands for a run. See the docs for more."""')
    plant(tmp_path, "docs/a.md", "```python\ntold = lies\n```\nThe run comes to an end; `x` stands for it.")
    assert phrases(tmp_path) == []
