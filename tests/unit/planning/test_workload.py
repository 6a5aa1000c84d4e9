"""Recorded groups are dealt whole, all of them in turn, and larger or smaller groups keep what they had in common."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from agentrl.planning.simulation.cache import PrefixCache, contexts
from agentrl.planning.simulation.episode import Episode, LearnerTokens, learner_tokens
from agentrl.planning.simulation.workload import RecordedGroup, Workload, is_unanimous, kept_unanimous
from agentrl.types import (
    TRAIN,
    EpisodeRequest,
    EpisodeSettings,
    Group,
    SampleId,
    Segment,
    Signal,
    StopReason,
    Timings,
    TokenSequence,
    Trajectory,
    Version,
    VersionSpan,
)
from tests.unit.planning.workshop import episode, group, member

V0 = VersionSpan(Version(0, 0), 0, 3)


def request(number: int, of: int = 0, attempt: int = 0, env: str = "math") -> EpisodeRequest:
    settings = EpisodeSettings(1.0, 8, 1, 10.0, 10.0)
    return EpisodeRequest(SampleId(number, of), attempt, TRAIN, number, 0, settings, env)


def dealt(workload: Workload, groups: int, members: int) -> list[list[Episode]]:
    attempts = [[workload.attempt(request(g, m)) for m in range(members)] for g in range(groups)]
    return [[attempt.episode for attempt in each if attempt.episode] for each in attempts]


def of_lengths(*lengths: int) -> RecordedGroup:
    return group(*(episode(length, reward=float(n % 2)) for n, length in enumerate(lengths)))


def test_members_of_a_group_stay_together() -> None:
    workload = Workload([of_lengths(1, 2), of_lengths(10, 20), of_lengths(100, 200)], 2)
    found = {tuple(sorted(e.sampled for e in each)) for each in dealt(workload, 30, 2)}
    assert found == {(1, 2), (10, 20), (100, 200)}


def test_all_groups_are_dealt_before_any_is_dealt_again() -> None:
    workload = Workload([of_lengths(n, n) for n in range(1, 8)], 2, seed=3)
    lengths = [each[0].sampled for each in dealt(workload, 21, 2)]
    assert all(sorted(lengths[n : n + 7]) == list(range(1, 8)) for n in (0, 7, 14))
    assert lengths[:7] != lengths[7:14]


def test_environments_have_their_own_groups() -> None:
    other = RecordedGroup("guess", of_lengths(5, 5).members)
    workload = Workload([of_lengths(1, 1), other], 2)
    attempts = [workload.attempt(request(n, env=env)) for n, env in enumerate(["math", "guess", "math"])]
    assert [attempt.episode.sampled for attempt in attempts if attempt.episode] == [1, 5, 1]


def test_a_smaller_group_has_some_of_the_members_and_a_larger_one_some_of_them_twice() -> None:
    recorded = of_lengths(1, 2, 3, 4)
    [few] = dealt(Workload([recorded], 2), 1, 2)
    assert len({e.sampled for e in few}) == 2
    [many] = dealt(Workload([recorded], 10), 1, 10)
    counts = Counter(e.sampled for e in many)
    assert counts.keys() == {1, 2, 3, 4}
    assert counts.total() == 10


def test_greedy_baselines_come_after_the_members() -> None:
    recorded = RecordedGroup("math", of_lengths(1, 2).members, (member(episode(99)),))
    workload = Workload([recorded], 3)
    [found] = dealt(workload, 1, 4)
    assert found[3].sampled == 99


def test_a_retry_repeats_the_next_recorded_attempt() -> None:
    workload = Workload([group(member(7.0, episode(5)), episode(6, reward=0.0))], 2)
    assert workload.attempt(request(0, 0, 0)).episode is None
    assert workload.attempt(request(0, 0, 1)).episode is not None
    assert workload.attempt(request(0, 0, 2)).episode is not None


def beta_groups(members: int, groups: int, seed: int) -> list[RecordedGroup]:
    """Groups of tasks whose solve rates have a beta distribution, as those of a model early in its training."""
    rng = random.Random(seed)
    rates = [rng.betavariate(0.4, 0.8) for _ in range(groups)]
    return [group(*(episode(5, reward=float(rng.random() < rate)) for _ in range(members))) for rate in rates]


def test_larger_groups_have_a_signal_as_often_as_real_ones() -> None:
    recorded, real = beta_groups(8, 2000, 0), beta_groups(16, 2000, 1)
    expected = sum(map(is_unanimous, real)) / len(real)
    found = dealt(Workload(recorded, 16), 2000, 16)
    unanimous = sum(len({e.reward for e in each}) == 1 for each in found) / len(found)
    assert sum(map(is_unanimous, recorded)) / len(recorded) > expected + 0.05
    assert unanimous == pytest.approx(expected, abs=0.03)


def test_groups_of_the_recorded_size_or_smaller_need_no_extrapolation() -> None:
    assert kept_unanimous(beta_groups(8, 50, 0), 8) == 1.0
    assert kept_unanimous(beta_groups(8, 50, 0), 4) == 1.0
    assert kept_unanimous([], 8) == 1.0


# --- episodes ---------------------------------------------------------------------------------------------------


def real_trajectory(*sequences: tuple[tuple[int, bool, int], ...]) -> Trajectory:
    """A trajectory of segments: (length, whether they were sampled, turn)."""
    built = tuple(
        TokenSequence(
            tuple(
                Segment((7,) * length, is_action, (-1.0,) * length if is_action else (), turn=turn)
                for length, is_action, turn in sequence
            )
        )
        for sequence in sequences
    )
    signals = (Signal("right", 1.0, evidence={"long": "text"}),)
    return Trajectory(
        SampleId(0, 0), 0, TRAIN, 0, "0", built, (), signals, StopReason.ENV_DONE, turns=2,
        timings=Timings(10.0, 6.0, 3.0, 0.5),
    )  # fmt: skip


def test_an_episode_keeps_what_the_engine_reads_and_samples_in_each_turn() -> None:
    found = Episode.of(real_trajectory(((20, False, 0), (5, True, 0), (4, False, 0), (6, True, 1))))
    assert [(turn.context, turn.sampled, turn.sequence) for turn in found.turns] == [(20, 5, 0), (4, 6, 0)]
    assert (found.engine_s, found.env_s, found.score_s, found.worker_s) == pytest.approx((6.0, 3.0, 0.5, 0.5))
    assert found.pause_s == pytest.approx(1.0)
    assert found.signals == (Signal("right", 1.0),)


def test_a_rewritten_history_is_read_from_its_beginning() -> None:
    found = Episode.of(real_trajectory(((20, False, 0), (5, True, 0)), ((30, False, 1), (6, True, 1))))
    assert [(turn.context, turn.sequence) for turn in found.turns] == [(20, 0), (30, 1)]
    again = found.trajectory(request(0), [(V0,), (V0,)], 1.0)
    assert [len(sequence.ids) for sequence in again.sequences] == [25, 36]
    assert again.action_tokens == 11


def test_a_turn_continues_its_own_sequence_after_those_of_a_subagent() -> None:
    main = ((20, False, 0), (5, True, 0), (4, False, 2), (6, True, 2))
    subagent = ((30, False, 1), (7, True, 1), (3, False, 3), (2, True, 3))
    found = Episode.of(real_trajectory(main, subagent))
    first, second, third, fourth = contexts(found, "episode", "group")
    assert [each.length for each in (first, second, third, fourth)] == [20, 30, 20 + 5 + 4, 30 + 7 + 3]
    assert (first.sequence, second.sequence) == (third.sequence, fourth.sequence)
    again = found.trajectory(request(0), [(V0,)] * 4, 1.0)
    assert [len(sequence.ids) for sequence in again.sequences] == [35, 42]


def test_a_later_sequence_shares_the_tokens_that_it_has_in_common_with_an_earlier_one() -> None:
    def sequence(turn: int, *prompt: int) -> TokenSequence:
        return TokenSequence((Segment(prompt, False, turn=turn), Segment((9, 9), True, (-1.0, -1.0), turn=turn)))

    system, plan, other = range(100, 132), range(200, 232), range(300, 332)
    sequences = sequence(0, *system, *plan), sequence(1, *other), sequence(2, *system, *plan[:16], *other)
    found = Episode.of(replace(real_trajectory(), sequences=sequences))
    cache = PrefixCache(16)
    assert [cache.read(each) for each in contexts(found, "episode", "group")] == [64, 32, 80 - 48]


def test_the_prompt_of_a_group_goes_through_the_learner_once() -> None:
    one = episode(10, 100).trajectory(request(0), [()], 0.0)
    two = episode([10, 10], 100).trajectory(request(0, 1), [(), ()], 0.0)
    assert learner_tokens(Group(0, (one,))) == LearnerTokens(110, 10)
    assert learner_tokens(Group(0, (one, two))) == LearnerTokens(100 + 10 + (10 + 100 + 10), 30)
