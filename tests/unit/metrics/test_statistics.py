"""Scores and their intervals are what the textbooks say."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from agentrl.metrics.statistics import bootstrap, pass_at_k, pass_at_k_interval, wilson


@pytest.mark.parametrize(("samples", "k"), [(n, k) for n in range(1, 7) for k in range(1, n + 1)])
def test_pass_at_k_is_the_share_of_k_subsets_with_a_right_one(samples: int, k: int) -> None:
    for correct in range(samples + 1):
        right = [i < correct for i in range(samples)]
        subsets = list(itertools.combinations(right, k))
        assert pass_at_k(correct, samples, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_needs_k_samples() -> None:
    with pytest.raises(ValueError, match="pass@8 needs at least 8 samples"):
        pass_at_k(1, 4, 8)


def test_wilson_gives_the_published_interval() -> None:
    interval = wilson(8, 10)  # Brown, Cai, DasGupta 2001
    assert (round(interval.low, 3), round(interval.high, 3)) == (0.490, 0.943)


def test_an_interval_is_never_empty_though_all_tasks_agree() -> None:
    for correct in (0, 8):
        interval = pass_at_k_interval([correct] * 16, [8] * 16)
        assert interval.method == "wilson"
        assert interval.low < interval.high
        assert interval.low <= interval.mean <= interval.high


def test_one_sample_of_each_task_is_a_proportion() -> None:
    assert pass_at_k_interval([1, 0, 1, 1], [1] * 4) == wilson(3, 4)


def test_the_unit_is_the_task_not_the_sample() -> None:
    alike = pass_at_k_interval([0, 16] * 8, [16] * 16)
    spread = pass_at_k_interval([7, 9] * 8, [16] * 16)
    assert alike.mean == spread.mean == 0.5
    assert alike.high - alike.low > 4 * (spread.high - spread.low)


def test_tasks_without_enough_samples_are_left_out() -> None:
    assert pass_at_k_interval([1, 3, 0], [2, 4, 0], k=4).mean == 1.0
    assert math.isnan(pass_at_k_interval([0], [0]).mean)


def test_the_same_seed_gives_the_same_interval() -> None:
    assert pass_at_k_interval([1, 2, 3], [4, 4, 4], seed=7) == pass_at_k_interval([1, 2, 3], [4, 4, 4], seed=7)


def test_the_bootstrap_covers_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(0)
    hits = 0
    for _ in range(300):
        interval = bootstrap([rng.betavariate(2, 2) for _ in range(48)], resamples=1000)
        hits += interval.low <= 0.5 <= interval.high
    assert 0.93 <= hits / 300 <= 0.97
