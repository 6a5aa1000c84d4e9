"""The benchmarks start, and what they print last can be read by a program."""

from __future__ import annotations

import json
import math
import runpy
from pathlib import Path

import pytest

from benchmarks.arms import Arm
from benchmarks.learning import over_seeds
from benchmarks.timing import alternated, column, last_line

ROOT = Path(__file__).parents[2]
COMMANDS = (
    "agents",
    "grading",
    "learner",
    "matmul",
    "overhead",
    "rollout",
    "sandbox",
    "simulation",
    "start",
    "sync",
    "tools",
    "variants",
    "versus_trl",
)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_benchmark_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the last line is the figures as JSON" in said


def test_the_last_line_is_one_json_object_that_names_benchmark_and_machine() -> None:
    line = last_line("sync", {"seconds": 1.23456789, "parts": {"load": 0.000123456}, "rounds": 3, "row": (1, 2.0)})
    figures = json.loads(line)
    assert "\n" not in line
    assert list(figures) == ["benchmark", "machine", "seconds", "parts", "rounds", "row"]
    assert list(figures["machine"]) == ["cpu", "cores", "memory_gib", "load"]
    assert figures["seconds"] == 1.235
    assert figures["parts"] == {"load": 0.0001235}
    assert figures["rounds"] == 3
    assert figures["row"] == [1, 2.0]


async def test_arms_take_turns_and_the_warm_up_does_not_count() -> None:
    called: list[str] = []

    async def arm(name: str) -> dict[str, float]:
        called.append(name)
        return {"seconds": float(len(called))}

    taken = await alternated(2, {"a": lambda: arm("a"), "b": lambda: arm("b")})
    assert called == ["a", "b"] * 3
    assert [row["seconds"] for row in taken["a"]] == [3.0, 5.0]
    assert column(taken["b"], "seconds") == 5.0


def test_an_arm_lives_in_a_process_that_sees_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BENCHMARK_ARM", raising=False)
    arm = Arm(Environment, env={"BENCHMARK_ARM": "yes"})
    try:
        assert arm.call("get", "BENCHMARK_ARM") == "yes"
        assert not Environment().get("BENCHMARK_ARM")
        with pytest.raises(RuntimeError, match="ValueError: no such variable"):
            arm.call("demand", "NOT_THERE")
        pid = arm.call("pid")
    finally:
        arm.close()
    assert not Path(f"/proc/{pid}").exists()


class Environment:
    def get(self, name: str) -> str:
        import os

        return os.environ.get(name, "")

    def demand(self, name: str) -> str:
        raise ValueError(f"no such variable: {name}")

    def pid(self) -> int:
        import os

        return os.getpid()


def test_a_mean_over_seeds_has_students_interval() -> None:
    interval = over_seeds([0.80, 0.82, 0.87])
    assert interval.mean == pytest.approx(0.83)
    assert interval.high - interval.mean == pytest.approx(4.303 * 0.036056 / math.sqrt(3), rel=1e-3)
    assert over_seeds([0.5]).method == "none"
    many = over_seeds([0.0, 1.0] * 40)
    assert many.high - many.mean == pytest.approx(1.9905 * 0.50315 / math.sqrt(80), rel=1e-3)
