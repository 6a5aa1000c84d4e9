"""A simulated run takes as long as its queues on paper, and keeps the promises of the real scheduler."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

import pytest

from agentrl.config.schema import Config
from agentrl.planning.simulation.calibration import Calibration, LearnerRates
from agentrl.planning.simulation.cluster import Speeds
from agentrl.planning.simulation.engine import EngineRates
from agentrl.planning.simulation.loop import Played, play
from agentrl.planning.simulation.workload import RecordedGroup
from agentrl.types import StopReason
from tests.unit.planning.workshop import calibration, config, episode, group, member, pair

SHARED = EngineRates(step_s=0.0, request_s=0.1, prefill_s=0.0)
STEP = EngineRates(step_s=0.1, request_s=0.0, prefill_s=0.0)


def seconds(played: Played, phase: str = "total") -> list[float]:
    return [getattr(step.seconds, phase) for step in played.steps]


def run_of(
    calibrated: Calibration, chosen: Config | None = None, steps: int = 8, start: int = 3, seed: int = 0
) -> Played:
    return play(calibrated, chosen or config(), Speeds(), steps + start, start, seed)


# --- queues on paper --------------------------------------------------------------------------------------------


def test_a_synchronous_step_is_the_sum_of_its_parts() -> None:
    # 4 episodes of 10 tokens, 0.1 s for each token of each; 40 tokens through the learner.
    calibrated = calibration([pair(10)], SHARED, LearnerRates(2.0, 0.05), publish_s=0.5, other_s=0.25)
    played = run_of(calibrated)
    assert seconds(played, "learn") == pytest.approx([4.0] * 8)
    assert seconds(played, "publish") == pytest.approx([0.5] * 8)
    assert seconds(played, "other") == pytest.approx([0.25] * 8)
    assert seconds(played, "rollout") == pytest.approx([4.0 - 0.25] * 8)  # sampling begins before the step is recorded
    assert seconds(played) == pytest.approx([8.5] * 8)
    assert {age for step in played.steps for age in step.ages} == {0}


def test_two_engines_halve_the_time_to_sample() -> None:
    calibrated = calibration([pair(10)], SHARED)
    assert seconds(run_of(calibrated), "rollout") == pytest.approx([4.0] * 8)
    assert seconds(run_of(calibrated, config(engine__count=2)), "rollout") == pytest.approx([2.0] * 8)


def test_a_faster_engine_and_learner_take_less() -> None:
    calibrated = calibration([pair(10)], SHARED, LearnerRates(2.0, 0.05))
    played = play(calibrated, config(), Speeds(engine=2.0, update=4.0, token=2.0), 4)
    assert seconds(played, "rollout") == pytest.approx([2.0] * 4)
    assert seconds(played, "learn") == pytest.approx([2.0 / 4 + 0.05 * 40 / 2] * 4)


def test_a_straggler_decides_how_long_a_synchronous_step_takes() -> None:
    calibrated = calibration([group(episode(10, reward=0.0), episode(100, reward=1.0))], STEP)
    assert seconds(run_of(calibrated)) == pytest.approx([10.0] * 8)


def test_staleness_1_hides_the_learner_where_sampling_takes_longer() -> None:
    # 4 s to sample a batch and 3 s to train it: 7 s in turns, 4 s side by side.
    calibrated = calibration([pair(10)], SHARED, LearnerRates(3.0, 0.0))
    assert seconds(run_of(calibrated)) == pytest.approx([7.0] * 8)
    assert fmean(seconds(run_of(calibrated, config(rollout__max_staleness=1)))) == pytest.approx(4.0)


def test_staleness_1_hides_sampling_where_the_learner_takes_longer() -> None:
    calibrated = calibration([pair(10)], SHARED, LearnerRates(5.0, 0.0), publish_s=0.5)
    played = run_of(calibrated, config(rollout__max_staleness=1))
    assert seconds(played) == pytest.approx([5.5] * 8)
    assert seconds(played, "rollout") == pytest.approx([0.0] * 8)


def test_a_publication_stops_sampling() -> None:
    calibrated = calibration([pair(10)], SHARED, LearnerRates(3.0, 0.0), publish_s=0.5)
    assert fmean(seconds(run_of(calibrated, config(rollout__max_staleness=1)))) == pytest.approx(4.5)


def test_the_environment_takes_its_time_for_all_episodes_at_once() -> None:
    calibrated = calibration([pair(10, env_s=6.0, score_s=1.0)], SHARED)
    assert seconds(run_of(calibrated)) == pytest.approx([4.0 + 6.0 + 1.0] * 8)


def test_turns_alternate_with_the_environment() -> None:
    turns = [group(*(episode([5, 5], env_s=6.0, reward=reward) for reward in (0.0, 1.0)))]
    assert seconds(run_of(calibration(turns, SHARED))) == pytest.approx([4 * 10 * 0.1 + 6.0] * 8)


def test_a_worker_computes_one_thing_after_the_other() -> None:
    calibrated = calibration([pair(10, worker_s=0.5)], dispatch_s=0.5)
    assert seconds(run_of(calibrated)) == pytest.approx([4 * 1.0] * 8, abs=1e-4)
    assert seconds(run_of(calibrated, config(rollout__workers=2))) == pytest.approx([2 * 1.0] * 8, abs=1e-4)


def test_a_limit_of_episodes_at_once_makes_the_others_wait() -> None:
    calibrated = calibration([pair(10, env_s=2.0)])
    assert seconds(run_of(calibrated)) == pytest.approx([2.0] * 8, abs=1e-4)
    assert seconds(run_of(calibrated, config(rollout__concurrency=1))) == pytest.approx([8.0] * 8, abs=1e-4)


@pytest.mark.parametrize(("prompt", "again"), [(160, 32), (256, 128), (38, 38)])
def test_members_of_a_group_read_the_whole_blocks_of_their_prompt_once(prompt: int, again: int) -> None:
    calibrated = calibration([pair(1, context=prompt)], EngineRates(0.0, 0.0, 0.01))
    assert seconds(run_of(calibrated)) == pytest.approx([2 * (prompt + again) * 0.01] * 8, abs=1e-4)
    without = config(engine__prefix_caching=False)
    assert seconds(run_of(calibrated, without)) == pytest.approx([4 * prompt * 0.01] * 8, abs=1e-4)


def test_a_batch_without_a_signal_is_neither_trained_nor_published() -> None:
    equal = [group(episode(10), episode(10))]
    played = run_of(calibration(equal, SHARED, LearnerRates(3.0, 0.0), publish_s=0.5))
    assert seconds(played) == pytest.approx([4.0] * 8)


def test_idle_shares_are_those_on_paper() -> None:
    played = run_of(calibration([pair(10)], SHARED, LearnerRates(6.0, 0.0), dispatch_s=0.25))
    total_s = sum(seconds(played))
    assert played.workers_s / total_s == pytest.approx(4 * 0.25 / (total_s / 8))
    assert played.engines_s / total_s == pytest.approx(0.4, abs=0.03)


# --- the scheduler's promises -----------------------------------------------------------------------------------

SLOW = [pair(10), pair(10), pair(10), group(episode(10, reward=0.0), episode(400, reward=1.0))]


def test_drop_goes_on_without_a_straggler_and_discards_it() -> None:
    played = run_of(calibration(SLOW, STEP), config(rollout__max_staleness=1), steps=30)
    assert sum(step.dropped["stale"] for step in played.steps) > 0
    assert max(seconds(played)) < 40


def test_wait_keeps_the_straggler_and_its_batch_waits() -> None:
    chosen = config(rollout__max_staleness=1, rollout__on_stale="wait")
    played = run_of(calibration(SLOW, STEP), chosen, steps=30)
    assert played.attempts["stale"] == 0
    assert max(seconds(played)) > 30


def test_a_group_without_a_signal_is_replaced_if_the_algorithm_filters() -> None:
    groups = [group(episode(10), episode(10)), pair(10)]
    chosen = config(algorithm__filter_zero_variance=True, algorithm__name="grpo")
    played = run_of(calibration(groups, SHARED, recorded=chosen), chosen)
    assert played.attempts["filtered"] > 0
    assert {len(step.ages) for step in played.steps} == {4}


def test_an_invalid_sample_leaves_its_group() -> None:
    groups = [
        group(episode(10, reward=0.0), episode(10, reward=1.0), episode(10, reward=None, stop=StopReason.ENV_ERROR))
    ]
    chosen = config(rollout__group_size=3)
    played = run_of(calibration(groups, SHARED, recorded=chosen), chosen)
    assert {len(step.ages) for step in played.steps} == {4}
    assert {step.dropped["invalid"] for step in played.steps} == {2}


def test_no_share_of_invalid_samples_stops_a_simulation() -> None:
    failed = episode(10, reward=None, stop=StopReason.ENV_ERROR)
    groups = [group(failed, failed, failed, failed), group(*(episode(10, reward=float(n % 2)) for n in range(4)))]
    chosen = config(rollout__group_size=4, rollout__max_invalid=0.1)
    played = run_of(calibration(groups, SHARED, recorded=chosen), chosen)
    assert sum(step.dropped["invalid"] for step in played.steps) > 0


def test_a_lost_attempt_takes_its_time_and_runs_again() -> None:
    groups = [group(episode(10, reward=0.0), member(7.0, episode(10, reward=1.0)))]
    played = run_of(calibration(groups, STEP))
    assert seconds(played) == pytest.approx([8.0] * 8)
    assert {step.dropped["lost"] for step in played.steps} == {2}


def random_groups(seed: int, size: int) -> Sequence[RecordedGroup]:
    rng = random.Random(seed)

    def one() -> object:
        lengths = [rng.randint(1, 60) for _ in range(rng.randint(1, 3))]
        reward = rng.choice([0.0, 1.0, None]) if rng.random() < 0.2 else float(rng.random() < 0.5)
        return episode(lengths, rng.randint(0, 50), reward=reward, env_s=rng.expovariate(1.0))

    return [group(*(one() for _ in range(size))) for _ in range(12)]  # type: ignore[arg-type]


MIXED = EngineRates(step_s=0.02, request_s=0.004, prefill_s=0.001)
SETTINGS = [(staleness, way) for staleness in (0, 1, 2, 4) for way in ("drop", "wait")]


@pytest.mark.parametrize(("staleness", "way"), SETTINGS)
def test_no_trained_sample_is_older_than_the_bound(staleness: int, way: str) -> None:
    chosen = config(rollout__max_staleness=staleness, rollout__on_stale=way, rollout__group_size=4, engine__count=2)
    for seed in range(3):
        groups = random_groups(seed, 4)
        calibrated = calibration(groups, MIXED, LearnerRates(1.0, 0.002), chosen, publish_s=0.2)
        played = run_of(calibrated, chosen, steps=20, seed=seed)
        assert max(age for step in played.steps for age in step.ages) <= staleness
        assert staleness == 0 or any(age > 0 for step in played.steps for age in step.ages)


@pytest.mark.parametrize(("staleness", "way"), SETTINGS)
def test_no_attempt_is_lost_from_the_books(staleness: int, way: str) -> None:
    chosen = config(rollout__max_staleness=staleness, rollout__on_stale=way, rollout__group_size=4)
    calibrated = calibration(random_groups(7, 4), MIXED, LearnerRates(1.0, 0.002), chosen, publish_s=0.2)
    played = run_of(calibrated, chosen, steps=20, start=0)
    counts, trained = played.attempts, sum(len(step.ages) for step in played.steps)
    dropped = counts["stale"] + counts["filtered"] + counts["invalid"]
    assert counts["dispatched"] == counts["finished"] + counts["lost"] + counts["cancelled"]
    waiting = counts["finished"] - trained - dropped
    assert 0 <= waiting <= (staleness + 1) * chosen.rollout.prompts * 4


def test_the_same_seed_gives_the_same_run_and_another_one_does_not() -> None:
    chosen = config(rollout__max_staleness=1, rollout__group_size=4)
    learner = LearnerRates(1.0, 0.002, noise=(0.8, 1.0, 1.2))
    calibrated = calibration(random_groups(1, 4), MIXED, learner, chosen, publish_s=0.2)
    first, again, other = (run_of(calibrated, chosen, seed=seed) for seed in (5, 5, 6))
    assert first == again
    assert first != other
