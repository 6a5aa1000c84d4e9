"""A calibration finds in the records of a run what predicts it, and says what a run lacks."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.planning.simulation.calibration import LearnerRates, calibrate, learner_rates
from agentrl.planning.simulation.changes import changed
from agentrl.planning.simulation.engine import EngineRates
from agentrl.planning.simulation.episode import LearnerTokens
from agentrl.planning.simulation.fitting import fitted
from agentrl.planning.simulation.forecast import StepTimes, forecast
from agentrl.planning.simulation.recorded import RecordedRun, read
from agentrl.planning.simulation.workload import RecordedGroup
from agentrl.records.folder import RunFolder
from agentrl.types import StopReason
from tests.unit.planning.rehearsed import rehearse
from tests.unit.planning.workshop import calibration, config, episode, group, member

RATES = EngineRates(step_s=0.03, request_s=0.002, prefill_s=0.0005)
LEARNER = LearnerRates(1.0, 0.004)


def groups(turns: int = 1, size: int = 4, env_s: float = 0.0) -> list[RecordedGroup]:
    """Groups whose answers differ in length, as those of a model do."""
    rng = random.Random(0)

    def one(reward: float) -> object:
        lengths = [rng.randint(4, 60) for _ in range(turns)]
        return episode(lengths, rng.randint(30, 60), reward=reward, env_s=env_s * rng.random())

    return [group(*(one(float(n % 2)) for n in range(size))) for _ in range(24)]  # type: ignore[arg-type]


def recorded(path: Path, chosen: Config, dealt: list[RecordedGroup], steps: int = 12) -> RecordedRun:
    source = calibration(dealt, RATES, LEARNER, chosen, publish_s=0.4, other_s=0.01)
    return read(rehearse(path / "run", source, chosen, steps).path)


LAYOUTS = {
    "synchronous": ({}, 1),
    "several turns": ({}, 3),
    "stale": ({"rollout__max_staleness": 1}, 1),
    "stale turns": ({"rollout__max_staleness": 2}, 3),
    "two engines": ({"engine__count": 2}, 1),
    "few places": ({"engine__max_num_seqs": 8}, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_is_predicted_from_its_own_records(tmp_path: Path, layout: str) -> None:
    changes, turns = LAYOUTS[layout]
    chosen = config(rollout__prompts=8, rollout__group_size=4, **changes)
    run = recorded(tmp_path, chosen, groups(turns))
    found = calibrate(run, run.plain_steps)
    real = StepTimes.of([step.seconds for step in run.plain_steps])
    simulated = forecast(found, run.config).times
    assert simulated.mean_s == pytest.approx(real.mean_s, rel=0.04)
    assert simulated.phases.rollout == pytest.approx(real.phases.rollout, rel=0.08, abs=0.2)
    assert found.publish_s == pytest.approx([0.4] * len(found.publish_s))
    assert found.other_s == pytest.approx([0.01] * len(found.other_s))


@pytest.mark.parametrize(("layout", "off"), [
    ("synchronous", 0.01), ("stale", 0.01), ("two engines", 0.01), ("several turns", 0.15), ("stale turns", 0.15)
])  # fmt: skip
def test_steps_requests_and_prompts_each_get_their_own_seconds(tmp_path: Path, layout: str, off: float) -> None:
    changes, turns = LAYOUTS[layout]
    run = recorded(tmp_path, config(rollout__prompts=8, rollout__group_size=4, **changes), groups(turns))
    found = calibrate(run, run.plain_steps).engine
    assert (found.step_s, found.request_s) == pytest.approx((RATES.step_s, RATES.request_s), rel=off)
    assert found.prefill_s == pytest.approx(RATES.prefill_s, rel=off)


CHANGES = [
    {"rollout.group_size": 8},
    {"rollout.prompts": 4},
    {"rollout.max_staleness": 1},
    {"engine.count": 2},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_a_changed_setting_is_predicted_from_the_records_of_another_run(
    tmp_path: Path, change: dict[str, object]
) -> None:
    chosen = config(rollout__prompts=8, rollout__group_size=4)
    source = calibration(groups(), RATES, LEARNER, chosen, publish_s=0.4)
    run = read(rehearse(tmp_path / "run", source, chosen).path)
    real = forecast(source, changed(chosen, change)).times
    simulated = forecast(calibrate(run, run.plain_steps), changed(run.config, change)).times
    assert simulated.mean_s == pytest.approx(real.mean_s, rel=0.04)


def test_the_learner_is_fitted_to_the_tokens_that_it_trained(tmp_path: Path) -> None:
    chosen = config(rollout__prompts=8, rollout__group_size=4)
    found = calibrate(run := recorded(tmp_path, chosen, groups()), run.plain_steps).learner
    assert (found.update_s, found.token_s) == pytest.approx((1.0, 0.004), rel=1e-6)
    assert found.noise == pytest.approx([1.0] * len(found.noise))


def test_a_dispatch_that_takes_the_worker_time_is_found(tmp_path: Path) -> None:
    chosen = config(rollout__prompts=8, rollout__group_size=4)
    source = calibration(groups(), RATES, LEARNER, chosen, publish_s=0.4, dispatch_s=0.01)
    run = read(rehearse(tmp_path / "run", source, chosen).path)
    assert calibrate(run, run.plain_steps).dispatch_s == pytest.approx(0.01, rel=0.1)


# --- fits -------------------------------------------------------------------------------------------------------


def test_a_fit_has_no_negative_coefficients_and_no_slow_step_moves_it() -> None:
    rng = np.random.default_rng(0)
    causes = rng.uniform(1, 10, (60, 3))
    taken = causes @ [0.5, 0.0, 2.0]
    taken[::10] += 100
    sure = (False, False, False)
    assert fitted(causes, taken, sure, 60) == pytest.approx([0.5, 0.0, 2.0], abs=0.01)
    assert np.all(fitted(causes, causes @ [1.0, -0.3, 1.0], sure, 60) >= 0)


def test_causes_that_go_together_are_put_down_to_the_one_without_a_doubt() -> None:
    rng = np.random.default_rng(0)
    steps = rng.uniform(10, 20, 96)
    causes = np.column_stack([steps, 16 * steps * rng.uniform(0.99, 1.01, 96)])
    slow = np.repeat(rng.uniform(0.7, 1.3, 6), 16)  # each of six batches was measured on a machine that was as busy
    for doubtful in ((False, True), (True, False)):
        shares = fitted(causes, 0.05 * steps * slow, doubtful, 6) * [1, 16] / 0.05
        assert shares[doubtful.index(False)] == pytest.approx(1.0, abs=0.1)
        assert shares[doubtful.index(True)] < 0.05


def test_causes_that_differ_are_told_apart_although_they_are_doubtful() -> None:
    rng = np.random.default_rng(0)
    causes = rng.uniform(1, 10, (640, 2))
    taken = causes @ [0.5, 0.2] * np.repeat(rng.uniform(0.95, 1.05, 10), 64)
    assert fitted(causes, taken, (False, True), 10) == pytest.approx([0.5, 0.2], rel=0.1)


def test_updates_of_one_size_are_all_put_down_to_their_tokens() -> None:
    tokens = [LearnerTokens(total, total // 2) for total in (1000, 1050, 980)]
    rates = learner_rates(tokens, [2.0, 2.1, 1.96])
    assert (rates.update_s, rates.sampled_s) == (0.0, 0.0)
    assert rates.token_s == pytest.approx(0.002)


def test_sampled_tokens_take_longer_where_the_updates_show_it() -> None:
    rng = np.random.default_rng(0)
    tokens = [LearnerTokens(400 + sampled, sampled) for sampled in rng.integers(100, 1000, 12).tolist()]
    real = LearnerRates(0.0, 0.001, 0.003)
    found = learner_rates(tokens, [real.tokens_s(each) * rng.uniform(0.97, 1.03) for each in tokens])
    for each in (LearnerTokens(800, 400), LearnerTokens(1400, 1000)):
        assert found.update_s + found.tokens_s(each) == pytest.approx(real.tokens_s(each), rel=0.1)


# --- what counts ------------------------------------------------------------------------------------------------


def with_seconds(run: RecordedRun, number: int, **phases: float) -> RecordedRun:
    """The run with other seconds of some phases in one step."""
    steps = [replace(s, seconds=replace(s.seconds, **phases)) if s.step == number else s for s in run.steps]
    return replace(run, steps=tuple(steps))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    chosen = config(rollout__prompts=4, rollout__group_size=4)
    return recorded(tmp_path_factory.mktemp("recorded"), chosen, groups(), steps=8)


def test_warm_up_evaluations_and_checkpoints_do_not_count(run: RecordedRun) -> None:
    assert [step.step for step in run.plain_steps] == [2, 3, 4, 5, 6, 7, 8]
    other = with_seconds(with_seconds(run, 4, evaluate=9.0), 6, checkpoint=3.0)
    assert [step.step for step in other.plain_steps] == [2, 3, 5, 7, 8]


def test_the_first_step_after_a_resume_does_not_count(run: RecordedRun) -> None:
    steps = tuple(replace(step, version=f"1.{step.step}") if step.step > 5 else step for step in run.steps)
    assert [step.step for step in replace(run, steps=steps).plain_steps] == [2, 3, 4, 5, 7, 8]


def test_every_group_belongs_to_the_step_in_which_its_last_member_ended(run: RecordedRun) -> None:
    assert [len(run.groups([step])) for step in run.steps] == [4] * 8
    assert {len(group.members) for group in run.groups(run.steps)} == {4}


def test_attempts_keep_their_failures(tmp_path: Path) -> None:
    failed = episode(10, reward=None, stop=StopReason.ENV_ERROR)
    dealt = [group(episode(10, reward=0.0), episode(12, reward=1.0), failed, member(3.0, episode(8, reward=1.0)))]
    run = recorded(tmp_path, config(rollout__prompts=2, rollout__group_size=4), dealt)
    [found, *_] = run.groups(run.plain_steps)
    assert [[attempt.episode is None for attempt in each] for each in found.members] == [
        [False],
        [False],
        [False],
        [True, False],
    ]
    assert found.members[3][0].seconds == pytest.approx(3.0, abs=0.01)
    assert found.members[2][0].episode is not None
    assert found.members[2][0].episode.stop_reason is StopReason.ENV_ERROR


# --- what a run lacks -------------------------------------------------------------------------------------------


def test_a_run_of_few_steps_is_refused_with_the_remedy(tmp_path: Path) -> None:
    source = calibration(groups(), RATES, LEARNER)
    folder = rehearse(tmp_path / "run", source, config(), steps=4)
    with pytest.raises(ConfigError, match=r"has 3 of the 4 steps .* --steps 16 --eval.tasks 0"):
        read(folder.path)


def test_a_run_without_trajectories_is_refused(tmp_path: Path) -> None:
    folder = rehearse(tmp_path / "run", calibration(groups(), RATES, LEARNER), config(), steps=8)
    shutil.rmtree(folder.trajectories)
    with pytest.raises(ConfigError, match=r"no trajectories: .*trajectories is empty, damaged or was removed"):
        read(folder.path)


def test_a_folder_without_a_training_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run in"):
        read(tmp_path)
    RunFolder(tmp_path).config.write_text("steps = 3")
    with pytest.raises(ConfigError, match=r"has no ledger\.sqlite, as an evaluation"):
        read(tmp_path)


def test_a_configuration_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    folder = rehearse(tmp_path / "run", calibration(groups(), RATES, LEARNER), config(), steps=8)
    whole = folder.config.read_text()
    folder.config.write_text(whole[: whole.index("[engine]")])
    with pytest.raises(ConfigError, match=r"config\.toml has no engine\.count, which every run writes into it"):
        read(folder.path)


def test_an_environment_without_a_group_is_named(run: RecordedRun) -> None:
    envs = Config.model_validate({"env": [{"name": "math"}, {"name": "guess"}]}).env
    with pytest.raises(ConfigError, match="no whole group of guess: record a longer run"):
        calibrate(replace(run, config=run.config.model_copy(update={"env": envs})), run.plain_steps)


def test_steps_in_which_nothing_was_learned_are_refused(run: RecordedRun) -> None:
    with pytest.raises(ConfigError, match="contain 4 whole groups and 1 updates"):
        calibrate(run, run.steps[3:4])
