"""Every name that agentrl defines is read: by a shipped file, a benchmark, an example, a document or an entry point."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.unit.house.names import Definition, unread
from tests.unit.house.source import ROOT, author_sources, plant, source, sources

pytestmark = pytest.mark.timeout(180)

OVERRIDES = {  # names that another library calls or reads
    "from_lora_tensors": "vLLM's adapters",
    "eos_token": "agents that write prompts, as of a tokenizer of transformers",
    "feed_eof": "asyncio's protocol of a stream",
    "field_title_should_be_set": "pydantic's JSON schema",
    "held_names": "vLLM's weight source",
    "init_info_cls": "vLLM's weight transfer",
    "init_transfer_engine": "vLLM's weight transfer",
    "is_zero3": "transformers, which asks for it",
    "ds_autotp_parsed": "DeepSpeed's AutoTP",
    "model_config": "pydantic",
    "process_exited": "asyncio's transport of a process",
    "prompt_token_ids": "vLLM's RequestOutput, which agents of OpenRLHF read",
    "throw": "a coroutine, as the event loop sees it",
    "update_info_cls": "vLLM's weight transfer",
}
RECORDS = {  # classes whose fields users read, from `agentrl.Run` or from a file of the run
    "AttemptRow": "a row of the ledger",
    "PublishTimings": "the parts that benchmarks.sync prints",
    "StepReport": "part of a StepRecord",
}
KIT = "agentrl/env/testing/"  # what only tests of environments read
CODE = re.compile(r"^```\w*\n(.*?)^```$|`([^`\n]+)`", re.MULTILINE | re.DOTALL)


def unused(root: Path) -> list[Definition]:
    """The definitions below `root` that nobody reads, except those that other libraries and users read."""
    ours = [file for file in sources(root) if file.path.startswith("agentrl/")]
    authors = author_sources(root)
    readers = [*sources(root), *(file for file in authors if "/tests/" not in file.path)]
    readers += [source(root, path, path.parent) for path in sorted((root / "benchmarks").glob("*.py"))]
    words = documented(root) | announced(root / "pyproject.toml") | templated(root)
    kit = [file for file in ours if file.path.startswith(KIT)]
    found = unread([file for file in ours if file not in kit], readers, words)
    found += unread(kit, [*readers, *(file for file in authors if file not in readers)], words)
    return [each for each in found if each.name not in OVERRIDES and each.owner not in RECORDS]


def documented(root: Path) -> set[str]:
    """Words of code in the documents, which are the public API."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages if page.exists())
    return set(re.findall(r"\w+", " ".join(block + span for block, span in CODE.findall(text))))


def templated(root: Path) -> set[str]:
    """Words of the expressions in the templates of the report."""
    text = " ".join(path.read_text(encoding="utf-8") for path in root.glob("agentrl/report/templates/*.jinja"))
    return set(re.findall(r"\w+", " ".join(re.findall(r"\{[{%](.*?)[%}]\}", text, re.DOTALL))))


def announced(path: Path) -> set[str]:
    """The functions that the entry points of a project name."""
    if not path.exists():
        return set()
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    return {target.partition(":")[2] for group in groups for target in group.values()}


def test_every_name_is_read_somewhere() -> None:
    assert [str(definition) for definition in unused(ROOT)] == []


def test_no_exception_is_granted_for_nothing() -> None:
    ours = [file for file in sources(ROOT) if file.path.startswith("agentrl/")]
    unread_names = unread(ours, sources(ROOT), set())
    assert OVERRIDES.keys() - {definition.name for definition in unread_names} == set()
    assert RECORDS.keys() - {definition.owner for definition in unread_names} == set()


PLANTED = [
    ("def lonely(): ...", "lonely"),
    ("def lonely(): lonely()", "lonely"),
    ("LIMIT = 3", "LIMIT"),
    ("class Lonely: ...", "Lonely"),
    ("class A:\n    def lonely(self): ...\nA()", "A.lonely"),
    ("class A:\n    field: int = 0\n    def use(self): self.field = 1\nA(field=3).use()", "A.field"),
    ("class A:\n    name: str\nclass B:\n    name: str\ndef f(b: B | None): return b.name\nf(A())", "A.name"),
    ("class A:\n    name: str\ndef f(path: Path): return path.name\nf(A())", "A.name"),
    ("class B:\n    name: int\nclass A:\n    name: int\n    b: B\ndef f(a: A): return a.b.name\nf(A())", "A.name"),
    ("from enum import Enum\nclass A(Enum):\n    ONE = 1\n    TWO = 2\nA.ONE", "A.TWO"),
    ("def _private(): ...", "_private"),
    ("from other import f\n__all__ = ['lonely']\ndef lonely(): ...", "lonely"),
]


@pytest.mark.parametrize(("code", "name"), PLANTED)
def test_a_planted_name_that_nobody_reads_is_found(tmp_path: Path, code: str, name: str) -> None:
    plant(tmp_path, "agentrl/a.py", code)
    plant(tmp_path, "envs/x/tests/test_a.py", "from agentrl import a\na.lonely(), a.LIMIT, a.Lonely")
    assert [str(definition) for definition in unused(tmp_path)] == [f"agentrl/a.py: {name}"]


READ = [
    ("agentrl/b.py", "from agentrl.a import used\nused()"),
    ("tools/agentrl_tools/b.py", "from agentrl import a\na.used"),
    ("benchmarks/b.py", "import agentrl.a\nagentrl.a.used()"),
    ("examples/b.py", "getattr(x, 'used')"),
    ("agentrl/b.py", "actor.call('agentrl.a:used')"),
    ("docs/a.md", "Call `agentrl.a.used()`."),
    ("pyproject.toml", "[project.scripts]\nagentrl = 'agentrl.a:used'"),
]


@pytest.mark.parametrize(("path", "code"), READ)
def test_a_name_that_anything_shipped_reads_is_used(tmp_path: Path, path: str, code: str) -> None:
    plant(tmp_path, "agentrl/a.py", "def used(): ...")
    assert [str(definition) for definition in unused(tmp_path)] == ["agentrl/a.py: used"]
    plant(tmp_path, path, code)
    assert unused(tmp_path) == []


def test_tests_of_environments_read_the_testing_kit_alone(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/env/testing/a.py", "def used(): ...\ndef lonely(): ...")
    plant(tmp_path, "envs/x/tests/test_a.py", "from agentrl.env import testing\ntesting.used()")
    assert [str(definition) for definition in unused(tmp_path)] == ["agentrl/env/testing/a.py: lonely"]


def test_functions_of_one_name_that_return_different_classes_tell_none(tmp_path: Path) -> None:
    plant(
        tmp_path,
        "agentrl/a.py",
        "class A:\n    size: int\ndef of() -> A: ...\ndef use(): found = of(); found.size\nuse()",
    )
    plant(tmp_path, "agentrl/b.py", "class B: ...\ndef of() -> B: ...\nof()")
    assert unused(tmp_path) == []


def test_a_validator_is_read_by_pydantic(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/a.py", "class A:\n    @model_validator(mode='after')\n    def fits(self): ...\nA()")
    assert unused(tmp_path) == []


def test_a_match_statement_and_a_subclass_read_the_fields_of_a_class(tmp_path: Path) -> None:
    plant(tmp_path, "agentrl/a.py", "class A:\n    kind: int\n    size: int\nclass B(A):\n    ...")
    plant(tmp_path, "agentrl/b.py", "def f(b: B):\n    match b:\n        case A(kind=1): return b.size\nf")
    assert unused(tmp_path) == []
