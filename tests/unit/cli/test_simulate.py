"""`agentrl plan --simulate` shows real and simulated steps side by side, a forecast, and the best layouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentrl.cli.main import main
from agentrl.planning.simulation.calibration import LearnerRates
from agentrl.planning.simulation.engine import EngineRates
from tests.unit.planning.rehearsed import rehearse
from tests.unit.planning.workshop import calibration, config, pair


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rates = EngineRates(0.05, 0.02, 0.0), LearnerRates(2.0, 0.05)
    source = calibration([pair(n) for n in range(6, 16)], *rates, publish_s=0.5)
    return rehearse(tmp_path_factory.mktemp("plan") / "run", source, config(), 14).path


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["plan", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_real_and_simulated_steps_are_side_by_side(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "--simulate", recorded).splitlines()
    assert lines[0] == "Steps 8 to 14 as they were, and simulated by the steps before them:"
    assert lines[1].split() == ["real", "simulated", "error", "replayed", "error"]
    assert [line.split()[0] for line in lines[2:8]] == ["step", "90", "rollout", "learn", "publish", "other"]
    assert "Forecast for max_staleness 0, 2 x 2 samples, 1 engine, 1 learner rank, 1 worker:" in lines
    assert "-0.00" not in "\n".join(lines)


def test_a_changed_setting_is_forecast(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--simulate", recorded, "--rollout.max_staleness", "1", "--rollout.prompts=4")
    assert "Forecast for max_staleness 1, 4 x 2 samples" in text
    assert "note: an engine has 1 thread, not 2 as recorded" in text


def test_the_best_layouts_come_first(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--simulate", recorded, "--cores", "4", "--rollout.max_staleness", "1")
    assert "Forecast for max_staleness 0, 2 x 2 samples, 1 engine" in text
    assert "Best layouts on 4 CPU cores:" in text
    assert 1 <= len(text.partition("Best layouts")[2].splitlines()) - 2 <= 8


def test_the_figures_are_one_line_of_json(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(shown(capsys, "--simulate", recorded, "--cores", "2", "--rollout.max_staleness", "0", "--json"))
    assert found.keys() == {"run", "check", "forecast", "hardware", "best"}
    assert found["hardware"] == {"gpus": 0, "cores": 2}
    assert found["check"]["simulated"]["mean_s"] > 0
    assert found["best"][0]["layout"]["max_staleness"] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--simulate", "nowhere"), "no run in nowhere"),
        (("--simulate", "RUN", "--rollout.max_tokens", "3"), "cannot follow rollout.max_tokens"),
        (("--simulate", "RUN", "--rollout.promts", "3"), "Did you mean 'rollout.prompts'?"),
        (("--simulate", "RUN", "--gpus", "two"), "--gpus: must be a whole number of at least 1, got 'two'"),
        (("--simulate", "RUN", "--gpus", "2"), "recorded on CPUs, which say nothing about 2 GPUs: give --cores"),
        (("--simulate", "RUN", "--gpus", "0"), "--gpus: must be a whole number of at least 1, got '0'"),
        (("--simulate", "RUN", "--gpus", "2", "--cores", "2"), "either --gpus or --cores"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    recorded: Path, words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *(str(recorded) if word == "RUN" else word for word in words)]) == 2
    assert why in capsys.readouterr().err
