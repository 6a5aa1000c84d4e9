"""The benchmarks start, and what they print last can be read by a program."""

from __future__ import annotations

import json
import math
import mmap
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from agentrl.learner.attention.tiles import TILE
from benchmarks import attention
from benchmarks.arms import Arm
from benchmarks.attention import Case
from benchmarks.attention_forms import FORMS, Form
from benchmarks.learning import over_seeds
from benchmarks.memory import forget_peak, peak_bytes, resident_bytes
from benchmarks.packs import Heads, Pack, Trees, states, tree
from benchmarks.timing import alternated, column, last_line

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py") if "__main__" in file.read_text())


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_benchmark_says_how_it_is_called(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)  # other tests import some of them
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


def outcome(form: Form, given: list[Tensor]) -> list[Tensor]:
    """Output and gradients of the tokens of a pack, in the form's layout and back."""
    *inputs, grad = given
    leaves = [form.spread(one).requires_grad_() for one in inputs]
    out = form(*leaves)
    grads = torch.autograd.grad(out, leaves, form.placed(grad))
    return [form.gathered(out.detach()), *(form.summed(one) for one in grads)]


@pytest.mark.parametrize("trees", [[(0, [50])], tree(160), [(7, [5, 9]), (0, [3])]])
def test_the_sides_of_the_attention_benchmark_compute_the_same(trees: Trees) -> None:
    pack, heads = Pack.of(trees), Heads(4, 2, 8)
    tiled, *others = (outcome(form(pack), states(len(pack), heads)) for form in FORMS.values())
    for other in others:
        for one, expected in zip(other, tiled, strict=True):
            assert (one.float() - expected.float()).norm() <= 2e-2 * expected.float().norm()


def test_trees_have_the_tokens_that_are_asked_for_and_branches_of_different_lengths() -> None:
    [(prefix, branches)] = tree(1024)
    assert (prefix + sum(branches), len(branches), prefix) == (1024, 16, pytest.approx(512, abs=16))
    assert max(branches) == pytest.approx(3 * min(branches), rel=0.2)


def test_a_side_that_would_take_more_than_the_free_memory_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("tree", 32_768, Heads())
    assert case.needed_bytes("dense") > 2 << 30 > case.needed_bytes(f"tiles {TILE}")
    assert case.needed_bytes("padded") > 12 << 30
    free = attention.detect()
    monkeypatch.setattr(attention, "detect", lambda: replace(free, free_memory_gib=4.0))
    fitting, too_large = attention._fitting(case, ["tiles", "dense", "padded"])
    assert fitting == ["tiles", "dense"]
    assert too_large == {"padded": pytest.approx(15, abs=4)}


def test_the_peak_is_that_since_it_was_forgotten() -> None:
    def hold() -> mmap.mmap:
        """Pages of its own: the allocator would reuse what it keeps of freed memory."""
        held = mmap.mmap(-1, 32 << 20)
        held.write(b"1" * len(held))
        return held

    hold().close()
    forget_peak()
    before = resident_bytes()
    assert peak_bytes() - before < 8 << 20
    held = hold()
    assert peak_bytes() - before >= len(held) - (8 << 20)
    held.close()
