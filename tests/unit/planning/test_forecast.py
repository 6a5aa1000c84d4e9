"""Forecasts add up, follow the settings that they can follow, and say where they go beyond what was recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.config.machine import Machine
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.metrics.step import PhaseSeconds
from agentrl.planning.simulation.calibration import LearnerRates
from agentrl.planning.simulation.changes import changed, cores_of, with_threads
from agentrl.planning.simulation.cluster import GAIN, Speeds, by_threads, crowding, speeds
from agentrl.planning.simulation.engine import EngineRates
from agentrl.planning.simulation.forecast import StepTimes, check, forecast, simulate
from agentrl.planning.simulation.recorded import RecordedRun, read
from agentrl.types import SampleId
from tests.unit.config.test_resolve import LAPTOP
from tests.unit.planning.rehearsed import EPOCH, rehearse
from tests.unit.planning.workshop import calibration, config, episode, group, pair

SHARED = EngineRates(step_s=0.0, request_s=0.1, prefill_s=0.0)
LEARNER = LearnerRates(2.0, 0.05)


def test_a_forecast_adds_up() -> None:
    found = forecast(calibration([pair(10)], SHARED, LEARNER, publish_s=0.5), config())
    assert found.times.mean_s == pytest.approx(8.5)
    assert found.times.p90_s == pytest.approx(8.5)
    assert found.times.phases.total == pytest.approx(found.times.mean_s)
    assert found.samples_per_s == pytest.approx(4 / 8.5)
    assert found.staleness == (1.0,)
    assert (found.stale, found.filtered) == (0.0, 0.0)
    assert found.idle.engines == pytest.approx(4.5 / 8.5)
    assert found.idle.learner == pytest.approx(4.5 / 8.5)
    assert found.idle.workers == pytest.approx(1.0)
    assert found.notes == ()


def test_shares_of_dropped_samples_are_shares_of_those_that_came_back() -> None:
    groups = [pair(10), group(episode(10), episode(10))]
    chosen = config(algorithm__name="grpo", algorithm__filter_zero_variance=True)
    found = forecast(calibration(groups, SHARED, LEARNER, chosen), chosen)
    assert found.filtered == pytest.approx(0.5, abs=0.03)


def test_step_times_have_a_mean_a_percentile_and_phases() -> None:
    times = StepTimes.of([PhaseSeconds(rollout=float(n), learn=1.0) for n in range(1, 11)])
    assert (times.steps, times.mean_s, times.p90_s) == (10, 6.5, 10.0)
    assert (times.phases.rollout, times.phases.learn) == (5.5, 1.0)


def test_what_a_simulation_cannot_play_is_refused() -> None:
    source = calibration([pair(10)], SHARED, LEARNER)
    with pytest.raises(ConfigError, match=r"^rollout\.max_staleness 65: a simulation plays at most 64, lower it$"):
        forecast(source, config(rollout__max_staleness=65))
    with pytest.raises(ConfigError, match=r"^rollout\.prompts 5001 x rollout\.group_size 4: .* at most 20000 samples"):
        forecast(source, config(rollout__prompts=5001, rollout__group_size=4))
    slow = calibration([pair(10)], EngineRates(0.0, 1e4, 0.0), LEARNER)
    with pytest.raises(ConfigError, match=r"engine.count 1, .* would stop: no batch of .* Change fewer settings"):
        forecast(slow, config())


# --- a recorded run ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RecordedRun:
    source = calibration([pair(n) for n in range(6, 16)], SHARED, LEARNER, publish_s=0.5)
    return read(rehearse(tmp_path_factory.mktemp("forecast") / "run", source, config(), 24).path)


def test_the_second_half_of_a_run_is_predicted_by_the_first(run: RecordedRun) -> None:
    found = check(run)
    assert (found.first_step, found.last_step, found.real.steps) == (13, 24, 12)
    assert abs(found.error) < 0.05


def test_a_half_without_a_whole_group_is_refused(run: RecordedRun) -> None:
    early = tuple(attempt for attempt in run.attempts if attempt.ended_in <= 12)
    with pytest.raises(ConfigError, match=r"^environment math: no whole group ended in the steps .* a longer run$"):
        check(replace(run, attempts=early))


def joined(first: RecordedRun, second: RecordedRun) -> RecordedRun:
    """A run whose second half is another run."""
    count, groups = len(first.steps), 1 + max(attempt.sample.group for attempt in first.attempts)
    later_s = first.steps[-1].at - EPOCH
    steps = [replace(s, step=s.step + count, at=s.at + later_s, version=f"0.{s.step + count}") for s in second.steps]
    attempts = [
        replace(
            a,
            sample=SampleId(a.sample.group + groups, a.sample.member),
            dispatched_at=a.dispatched_at + later_s,
            ended_at=a.ended_at + later_s,
            ended_in=a.ended_in + count if a.ended_in else 0,
            trained_in=a.trained_in + count if a.trained_in else None,
        )
        for a in second.attempts
    ]
    return replace(first, steps=(*first.steps, *steps), attempts=(*first.attempts, *attempts))


def test_a_policy_that_changed_shows_in_the_replay(run: RecordedRun, tmp_path: Path) -> None:
    source = calibration([pair(n) for n in range(2, 5)], SHARED, LEARNER, publish_s=0.5)
    shorter = read(rehearse(tmp_path / "run", source, config(), 24).path)
    found = check(joined(run, shorter))
    assert found.error > 0.5
    assert found.replayed.mean_s == pytest.approx(found.real.mean_s, rel=0.06)


def test_a_run_is_simulated_from_its_folder_with_changes(run: RecordedRun) -> None:
    plain, twice = simulate(run.folder), simulate(run.folder, changes={"rollout.prompts": 4})
    assert (plain.layout.prompts, twice.layout.prompts) == (2, 4)
    assert twice.times.phases.rollout == pytest.approx(2 * plain.times.phases.rollout, rel=0.2)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run in"):
        simulate(tmp_path)


# --- changes ----------------------------------------------------------------------------------------------------


def machine(cores: int) -> Machine:
    return replace(LAPTOP, cores=cores)


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize(("engines", "critic"), [(1, "colocate"), (2, "colocate"), (4, "separate")])
def test_threads_are_those_that_a_run_chooses(cores: int, staleness: int, engines: int, critic: str) -> None:
    unresolved = Config.model_validate(
        {
            "device": "cpu",
            "engine": {"count": engines, "kv_cache_gib": 1},
            "rollout": {"max_staleness": staleness},
            "critic": {"placement": critic},
        }
    )
    resolved = resolve_run(unresolved, replace(machine(cores), memory_gib=512.0))
    found = with_threads(resolved, cores)
    assert (found.engine.threads, found.learner.threads) == (resolved.engine.threads, resolved.learner.threads)


def test_threads_follow_the_staleness_the_engines_and_the_cores() -> None:
    assert cores_of(config()) == 2
    stale = changed(config(), {"rollout.max_staleness": 1})
    assert (stale.engine.threads, stale.learner.threads) == (1, 1)
    assert cores_of(stale) == 2
    two = changed(config(), {"engine.count": 2}, cores=8)
    assert (two.engine.threads, two.learner.threads) == (4, 8)


def test_threads_that_were_set_by_hand_stay() -> None:
    odd = config(engine__threads=1)
    assert changed(odd, {"rollout.max_staleness": 1}).engine.threads == 1
    assert changed(config(), {"rollout.max_staleness": 1, "engine.threads": 2}).engine.threads == 2


def test_a_setting_that_changes_the_episodes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot follow rollout.max_tokens, learner.lr: .* rollout.prompts"):
        changed(config(), {"rollout.max_tokens": 8, "learner.lr": 1.0, "rollout.prompts": 3})
    with pytest.raises(ConfigError, match=r"rollout.prompts must be greater"):
        changed(config(), {"rollout.prompts": 0})
    with pytest.raises(ConfigError, match=r"unknown key 'rollout.promts'"):
        changed(config(), {"rollout.promts": 3})


@pytest.mark.parametrize("key", ["engine.count", "engine.threads", "learner.ranks", "learner.threads"])
def test_a_number_that_is_left_to_the_machine_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=f"^{key} 0 lets a run choose the number .* set {key} to 1 or more"):
        changed(config(), {key: 0})


def test_layouts_that_a_run_refuses_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"engine.placement colocate needs engines that can sleep"):
        changed(config(), {"engine.placement": "colocate"})
    with pytest.raises(ConfigError, match=r"algorithm grpo compares at least 2 episodes per task"):
        changed(config(algorithm__name="grpo"), {"rollout.group_size": 1})
    shared = config(engine__placement="colocate")
    with pytest.raises(ConfigError, match="samples during updates"):
        changed(shared, {"rollout.max_staleness": 1})
    with pytest.raises(ConfigError, match=r"the GPUs of all learner ranks: engine.count 2"):
        changed(shared, {"engine.count": 2})
    with pytest.raises(ConfigError, match=r"is 4 samples, fewer than learner.ranks x"):
        changed(config(), {"learner.ranks": 5})
    with pytest.raises(ConfigError, match=r"learner.ranks 3 is not a multiple of learner.sequence_parallel 2"):
        changed(config(learner__sequence_parallel=2, learner__ranks=2), {"learner.ranks": 3})


def test_speeds_on_cpus_follow_the_threads() -> None:
    assert speeds(config(), config(), 2) == Speeds()
    half = config(engine__threads=1, learner__threads=1, rollout__max_staleness=1)
    slower = 1 / GAIN
    assert speeds(config(), half, 2) == Speeds(slower, slower, slower)
    assert speeds(half, config(), 2) == Speeds(GAIN, GAIN, GAIN)
    assert speeds(config(), config(learner__ranks=2, learner__threads=1), 2) == Speeds(1.0, slower, 2 * slower)
    assert by_threads(8, 2) == GAIN**2


def test_fewer_cores_than_recorded_never_make_a_run_faster() -> None:
    one_thread = config(engine__threads=1, learner__threads=1)
    on = [speeds(config(), config(), cores) for cores in (1, 2, 4)]
    assert on[0] == Speeds(0.5, 0.5, 0.5)
    assert on[1] == on[2] == Speeds()
    assert speeds(config(), one_thread, 1) == speeds(config(), one_thread, 2) == Speeds(1 / GAIN, 1 / GAIN, 1 / GAIN)


def test_more_threads_than_cores_slow_all_of_them() -> None:
    crowded = config(rollout__max_staleness=1)
    assert crowding(crowded, 2) == (2.0, 2.0)
    assert crowding(config(), 2) == (1.0, 1.0)
    assert speeds(config(), crowded, 2) == Speeds(0.5, 0.5, 0.5)


def test_engines_and_ranks_that_take_turns_slow_only_their_own_kind() -> None:
    ranks, engines = config(learner__ranks=2, learner__threads=2), config(engine__count=2)
    assert (crowding(ranks, 2), crowding(engines, 2)) == ((1.0, 2.0), (2.0, 1.0))
    assert speeds(config(), ranks, 2) == Speeds(1.0, 0.5, 1.0)
    assert speeds(config(), engines, 2) == Speeds(0.5, 1.0, 1.0)


def test_the_ranks_of_a_critic_crowd_those_of_the_policy() -> None:
    assert crowding(config(critic__placement="separate"), 2) == (1.0, 2.0)
    assert crowding(config(critic__placement="separate", critic__ranks=3), 2) == (1.0, 4.0)
    assert crowding(config(critic__placement="separate", rollout__max_staleness=1), 2) == (3.0, 3.0)


def test_ranks_on_gpus_share_the_tokens() -> None:
    recorded = config().model_copy(update={"device": "cuda"})
    more = recorded.model_copy(update={"learner": recorded.learner.model_copy(update={"ranks": 4})})
    assert speeds(recorded, more, 0) == Speeds(1.0, 1.0, 4.0)


# --- notes ------------------------------------------------------------------------------------------------------


def test_loads_far_beyond_the_recorded_ones_are_noted() -> None:
    calibrated = replace(calibration([pair(10)], SHARED, LEARNER), most_requests=4, most_tokens=40)
    assert forecast(calibrated, config()).notes == ()
    notes = forecast(calibrated, config(rollout__prompts=8)).notes
    assert notes == (
        "an engine has 16 requests at once, 4.0 times as many as recorded",
        "a learner rank trains 160 tokens in a step, 4.0 times as many as recorded",
    )
    [engine, learner] = forecast(calibrated, config(engine__threads=1, learner__threads=1)).notes
    assert engine == "an engine has 1 thread, not 2 as recorded, and is taken to be 0.67 times as fast"
    assert learner == "a learner rank has 1 thread, not 2 as recorded, and is taken to be 0.67 times as fast"


def test_the_gain_of_threads_beyond_those_measured_is_called_an_assumption() -> None:
    calibrated = calibration([pair(10)], SHARED, LEARNER)
    [note] = forecast(calibrated, config(engine__threads=8)).notes
    assert note == (
        "an engine has 8 threads, not 2 as recorded, and is taken to be 2.2 times as fast, an assumption: it was "
        "measured with up to 2 threads"
    )
    many = calibration([pair(10)], SHARED, LEARNER, config(engine__threads=8))
    assert "an assumption" in forecast(many, config()).notes[0]


def test_a_handover_of_gpus_that_was_not_recorded_is_noted() -> None:
    calibrated = calibration([pair(10)], SHARED, LEARNER)
    [note] = forecast(calibrated, config(engine__placement="colocate")).notes
    assert "hand GPUs to each other" in note
