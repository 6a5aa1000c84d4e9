"""What README and docs show works: Python runs, commands and keys are known, links and named tests exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from itertools import dropwhile
from pathlib import Path

import pytest

import agentrl
from agentrl.algorithms import AlgorithmConfig, algorithms
from agentrl.cli import env
from agentrl.cli.flags import split
from agentrl.cli.main import COMMANDS, main
from agentrl.config.keys import RESUMABLE, SHORT_FLAGS, key_of, keys
from agentrl.config.loading import MODELS, load, of_flags
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config, RoleKeys
from agentrl.env import env_config, resolve
from agentrl.errors import ConfigError
from agentrl.planning.simulation.changes import SIMULATED
from agentrl.training.eval_config import is_read
from agentrl.training.inputs import algorithm_of
from tests.unit.config.test_resolve import FOUR_GPUS, LAPTOP, ONE_GPU
from tests.unit.records.synthetic import synthetic_run
from tests.unit.rollout.templates import tokenizer

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *ROOT.glob("envs/*/README.md"),
    *ROOT.glob("adapters/*/README.md"),
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FILE = re.compile(r"^# ([\w/]+\.py)$", re.MULTILINE)
SECTIONS = {key.partition(".")[0] for key in keys() if "." in key}
ALGORITHM_KEYS = {key: info for cls in algorithms().values() for key, info in keys(cls.Config, "algorithm.").items()}
SHOWN = "py"  # the language of files that are not part of the page's script
RUNS = ("train", "eval", "config", "plan")
SLOW = "# takes minutes\n"  # a block that is not run; the calls in it must name settings that exist
PATIENCE_S = 180  # for a script that imports torch on a busy machine


def blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(page.read_text()) if found == language]


def pages_with(language: str) -> list[object]:
    return [pytest.param(page, id=name(page)) for page in PAGES if blocks(page, language)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def desk(page: Path, folder: Path) -> Path:
    """Where a reader of the page works: files that it shows, runs that it reads, our packages, a tokenizer."""
    for block in (*blocks(page, "python"), *blocks(page, SHOWN)):
        if match := FILE.match(block):
            (folder / match[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / match[1]).write_text(block)
    for run in sorted(set(re.findall(r'Run\("(runs/\w+)"\)', page.read_text()))):
        synthetic_run(folder / run, steps=2)
    for neighbour in ("examples", "envs"):
        (folder / neighbour).symlink_to(ROOT / neighbour)
    tokenizer().save_pretrained(folder / "model")
    return folder


# --- Python -----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(PATIENCE_S + 10)
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    script = desk(page, tmp_path) / "page.py"
    script.write_text("\n".join(block for block in blocks(page, "python") if not block.startswith(SLOW)))
    command = [sys.executable, "-W", "error", str(script)]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("page", pages_with("python"))
def test_slow_python_blocks_call_agentrl_with_settings_that_exist(page: Path) -> None:
    for block in filter(lambda block: block.startswith(SLOW), blocks(page, "python")):
        calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
        assert calls
        for call in calls:
            assert isinstance(call.func, ast.Attribute)
            assert call.func.attr in agentrl.__all__
            agentrl.load_config(**{k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg})


# --- commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages_with("bash"))
def test_shell_blocks_parse_and_their_commands_are_accepted(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk(page, tmp_path))
    for number, block in enumerate(blocks(page, "toml")):
        (tmp_path / (f"run{number}.toml" if number else "run.toml")).write_text(block)
    for block in blocks(page, "bash"):
        subprocess.run(["bash", "-n"], input=block, text=True, check=True, timeout=10)
        for line in block.replace("\\\n", " ").splitlines():
            check_command(shlex.split(line, comments=True))


def check_command(words: list[str]) -> None:
    """An `agentrl` line names a command that exists and asks for what can run; a `make` line names a target."""
    words = list(dropwhile(lambda word: re.match(r"[A-Z_]+=", word), words))
    words = words[: words.index(">")] if ">" in words else words
    if words[:1] == ["make"]:
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if words[:1] != ["agentrl"]:
        return
    assert words[1] in COMMANDS
    if words[1] == "env":
        assert words[2] in env.COMMANDS
        words = [words[0], f"env_{words[2]}", *words[3:]]
    if words[1] == "plan" and "--simulate" in words:
        words = [words[0], "simulate", *words[2:]]
    own, overrides = split(words[2:])
    own_flags = re.findall(
        r'"--([a-z-]+)"', (ROOT / "agentrl" / "cli" / f"{words[1].replace('-', '_')}.py").read_text()
    )
    overrides = [(name, value) for name, value in overrides if name not in own_flags]
    if words[1] in ("env_show", "env_check", "env_serve"):
        [shown] = load(None, of_flags([("env", own[0]), *overrides])).env
        env_config(resolve(shown.name), shown.options)
        return
    assert words[1] in (*RUNS, "resume", "simulate") or not overrides, f"agentrl {words[1]} has no flags"
    assert words[1] != "simulate" or all(SIMULATED.fullmatch(name) for name, _ in overrides), overrides
    assert words[1] != "eval" or all(is_read(key_of(name)) for name, _ in overrides), overrides
    assert words[1] != "resume" or all(RESUMABLE.fullmatch(name) for name, _ in overrides), overrides
    if words[1] in RUNS:
        check_run(
            load(Path(own[1]) if own[:1] == ["--config"] and Path(own[1]).exists() else None, of_flags(overrides))
        )


def check_run(config: Config) -> None:
    """Environment and algorithm know their keys, and a laptop or a machine with GPUs would take the configuration."""
    env_config(resolve(config.env[0].name), config.env[0].options)
    refusals = []
    for machine in (LAPTOP, ONE_GPU, FOUR_GPUS):
        try:
            algorithm_of(resolve_run(config, machine))
        except ConfigError as error:
            refusals.append(str(error))
    assert len(refusals) < 3, refusals


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("agentrl train --learner.rl 1e-5", "learner.lr"),
        ("agentrl train --env guess --env.hihg 20", "env.high"),
        ("agentrl train --algo grop", "unknown algorithm"),
        ("agentrl train --algorithm.clip_lo 0.1", "algorithm.clip_low"),
        ("agentrl trian", "trian"),
        ("agentrl resume runs/x --lr 3", "lr"),
        ("agentrl show runs/x --steps 3", "no flags"),
        ("agentrl eval runs/x --steps 3", "steps"),
        ("agentrl plan --simulate runs/x --rollout.max_tokens 3", "max_tokens"),
        ("agentrl env shwo guess", "shwo"),
        ("agentrl env list --all yes", "no flags"),
        ("agentrl env show guess --env.hihg 20", "env.high"),
        ("make trane", "trane"),
        ("RAY_ADDRESS=auto agentrl train --env nowhere", "nowhere"),
    ],
)
def test_a_command_that_would_fail_is_found(line: str, why: str) -> None:
    with pytest.raises((ConfigError, AssertionError), match=why):
        check_command(shlex.split(line))


@pytest.mark.parametrize("page", pages_with("toml"))
def test_toml_blocks_are_configurations(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk(page, tmp_path))
    for block in blocks(page, "toml"):
        if "project" not in tomllib.loads(block):
            (tmp_path / "run.toml").write_text(block)
            check_run(load(tmp_path / "run.toml"))


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_keys_and_flags_that_the_text_names_exist(page: Path) -> None:
    assert [span for span in spans(page) if not is_known(span)] == []


def spans(page: Path) -> list[str]:
    """What stands in backticks outside the fences; on the page for OpenRLHF's users the first column is theirs."""
    text = FENCE.sub("", page.read_text())
    if "openrlhf" in page.name:
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
    return SPAN.findall(text)


OWN_FLAGS = {
    flag for file in (ROOT / "agentrl" / "cli").glob("*.py") for flag in re.findall(r'"--([a-z-]+)"', file.read_text())
}


def is_known(span: str) -> bool:
    """False for `section.key` or `--flag` that a run would refuse; anything else is no business of this test."""
    key = re.match(r"(--)?([a-z_]+(?:[.-][a-z_-]+)*)(?:$| )", span)
    if key is None or key[2] in ("help", "config", "version", "debug"):
        return True
    section, _, last = key[2].partition(".")
    if key[1] and not last:
        return section in SHORT_FLAGS or key_of(section) in keys() or key[2] in OWN_FLAGS
    is_key = section in SECTIONS and bool(last)
    known = keys() | ALGORITHM_KEYS
    return section == "env" or not (key[1] or is_key) or key[2] in known or last in ("py", "md")


def test_a_key_that_does_not_exist_is_found() -> None:
    unknown = ["learner.rl", "--learner.rl", "--rollout.stale 2", "--groupsize", "weights.verify_all", "algorithm.clip"]
    assert [span for span in unknown if is_known(span)] == []
    known = [
        "learner.lr",
        "algorithm.clip_low",
        "--group-size 8",
        "--env.high",
        "env.py",
        "torch.compile",
        "agentrl.env",
        "a - b",
        "--seed",
    ]
    assert [span for span in known if not is_known(span)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    missing = [link for link in links if not re.match("https?:", link) and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_tests_that_the_text_names_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:agentrl|tests|envs|examples|benchmarks|docs)/[\w/.-]+\.\w+)(?:::(\w+))?`", page.read_text()
    )
    assert [path for path, _ in named if not (ROOT / path).exists()] == []
    tests = [(path, test) for path, test in named if test]
    assert [test for path, test in tests if f"def {test}(" not in (ROOT / path).read_text()] == []


def test_page_and_help_of_resume_list_every_setting_that_it_may_change(capsys: pytest.CaptureFixture[str]) -> None:
    known = [*keys(), *keys(RoleKeys, "roles.NAME.")]
    resumable = [key for key in known if RESUMABLE.fullmatch(key) or key == MODELS]
    page = (ROOT / "docs" / "operate.md").read_text().partition("Flags may change only")[2].partition("A resume")[0]
    with pytest.raises(SystemExit):
        main(["resume", "--help"])
    text = capsys.readouterr().out.partition("May change:")[2]
    for listed in (SPAN.findall(page), re.findall(r"[\w.*]*[\w*]", text)):
        assert [key for key in known if any(fnmatchcase(key, name) for name in listed)] == resumable


def test_the_readme_names_every_command_and_every_everyday_flag() -> None:
    text = (ROOT / "README.md").read_text()
    assert [command for command in COMMANDS if f"`agentrl {command}" not in text] == []
    assert [flag for flag in SHORT_FLAGS if f"--{flag}" not in text] == []


def test_the_page_of_algorithms_has_every_algorithm_and_every_key_of_all() -> None:
    text = (ROOT / "docs" / "algorithms.md").read_text()
    needs = {name: cls.needs.group_size for name, cls in algorithms().items()}
    shown = dict(re.findall(r"^\| `([^`]+)` \|[^|]+\| (\d) \|", text, re.MULTILINE))
    assert shown == {name: str(size) for name, size in needs.items()}
    assert [key for key in keys(AlgorithmConfig, "algorithm.") if f"`{key}`" not in text] == []


def test_every_page_is_linked_from_the_first() -> None:
    first = (ROOT / "docs" / "README.md").read_text()
    pages = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    assert [page for page in pages if f"({page})" not in first] == []
