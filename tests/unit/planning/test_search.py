"""The search tries what fits the hardware and returns the fastest layout, the freshest and smallest of equal ones."""

from __future__ import annotations

import pytest

from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from agentrl.planning.simulation import search as module
from agentrl.planning.simulation.calibration import LearnerRates
from agentrl.planning.simulation.engine import EngineRates
from agentrl.planning.simulation.search import Hardware, ages, layouts, search
from tests.unit.planning.workshop import calibration, config, pair

SHARED = EngineRates(step_s=0.0, request_s=0.1, prefill_s=0.0)


def on_gpus(**changes: object) -> Config:
    return config(**{"rollout__prompts": 32} | changes).model_copy(update={"device": "cuda"})


def tried(hardware: Hardware, changes: dict[str, object], recorded: Config | None = None) -> set[tuple[object, ...]]:
    names = ("rollout.max_staleness", "engine.count", "learner.ranks", "engine.placement")
    return {tuple(each.get(name) for name in names) for each in layouts(recorded or on_gpus(), hardware, changes)}


def test_gpus_are_divided_in_every_way_or_shared() -> None:
    found = tried(Hardware(gpus=4), {"rollout.max_staleness": 1})
    separate = {(age, 4 - ranks, ranks, "separate") for age in (0, 1) for ranks in (1, 2, 3)}
    assert found == separate | {(0, 4, 4, "colocate")}


def test_many_gpus_are_divided_by_eighths() -> None:
    found = tried(Hardware(gpus=64), {"rollout.max_staleness": 0})
    assert {ranks for _, _, ranks, placement in found if placement == "separate"} == {8, 16, 24, 32, 40, 48, 56}


def test_there_are_no_more_ranks_and_engines_than_samples() -> None:
    few = on_gpus(rollout__prompts=4)
    found = tried(Hardware(gpus=64), {"rollout.max_staleness": 0}, few)
    assert found == {(0, 8, ranks, "separate") for ranks in range(1, 8)} | {(0, 8, 8, "colocate")}
    more = tried(Hardware(gpus=64), {"rollout.max_staleness": 0, "rollout.prompts": 32}, few)
    assert (0, 64, 64, "colocate") in more
    assert tried(Hardware(gpus=64), {"rollout.max_staleness": 0, "learner.ranks": 9}, few) == set()


def test_cores_have_no_more_engines_than_samples() -> None:
    few = config(rollout__prompts=1, rollout__group_size=4)
    counts = {engines for _, engines, *_ in tried(Hardware(cores=1_000_000), {"rollout.max_staleness": 0}, few)}
    assert counts == {1, 2, 3, 4}
    asked = {"rollout.max_staleness": 0, "engine.count": 5}
    assert {engines for _, engines, *_ in tried(Hardware(cores=8), asked, few)} == {5}


def test_engines_of_several_gpus_take_as_many() -> None:
    recorded = on_gpus(engine__tensor_parallel=2)
    found = tried(Hardware(gpus=4), {"rollout.max_staleness": 0}, recorded)
    assert found == {(0, 1, 1, "separate"), (0, 1, 2, "separate"), (0, 2, 4, "colocate")}


def test_gpus_of_other_roles_are_left_to_them() -> None:
    recorded = on_gpus(scorers__placement="separate")
    found = tried(Hardware(gpus=4), {"rollout.max_staleness": 0}, recorded)
    assert found == {(0, 2, 1, "separate"), (0, 1, 2, "separate"), (0, 3, 3, "colocate")}
    found = tried(Hardware(gpus=8), {"rollout.max_staleness": 0, "engine.count": 3}, recorded)
    assert found == {(0, 3, 4, "separate")}
    critic = on_gpus(critic__placement="separate")  # on as many ranks as the policy
    found = tried(Hardware(gpus=6), {"rollout.max_staleness": 0}, critic)
    assert found == {(0, 4, 1, "separate"), (0, 2, 2, "separate"), (0, 3, 3, "colocate")}
    found = tried(Hardware(gpus=6), {"rollout.max_staleness": 0, "engine.count": 2}, critic)
    assert found == {(0, 2, 2, "separate")}


def test_ranks_that_share_sequences_are_whole_groups() -> None:
    found = tried(Hardware(gpus=6), {"rollout.max_staleness": 0}, on_gpus(learner__sequence_parallel=2))
    assert found == {(0, 4, 2, "separate"), (0, 2, 4, "separate"), (0, 6, 6, "colocate")}


def test_settings_that_are_given_are_kept() -> None:
    found = tried(Hardware(gpus=16), {"rollout.max_staleness": 0, "engine.count": 11})
    assert found == {(0, 11, 5, "separate")}
    found = tried(Hardware(gpus=16), {"rollout.max_staleness": 0, "learner.ranks": 3})
    assert found == {(0, 13, 3, "separate")}
    found = tried(Hardware(gpus=4), {"rollout.max_staleness": 1, "engine.placement": "colocate"})
    assert found == {(0, 4, 4, "colocate")}


def test_cores_are_divided_among_engines_and_halved_for_sampling_during_updates() -> None:
    found = tried(Hardware(cores=4), {"rollout.max_staleness": 1}, config())
    assert {(age, count) for age, count, *_ in found} == {(0, 1), (0, 2), (0, 3), (0, 4), (1, 1), (1, 2)}


def test_the_bound_limits_the_staleness_that_is_tried() -> None:
    assert ages(0) == [0]
    assert ages(2) == [0, 1, 2]
    assert ages(20) == [0, 1, 2, 3, 4, 8, 16, 20]


def test_the_fastest_layout_is_found() -> None:
    # A batch takes one engine 4 s and one rank 2 s: of 3 GPUs two should sample while one learns.
    calibrated = calibration([pair(10)], SHARED, LearnerRates(0.0, 0.05), on_gpus())
    best, *_ = search(calibrated, Hardware(gpus=3), {"rollout.max_staleness": 2})
    assert (best.layout.engines, best.layout.ranks, best.layout.placement) == (2, 1, "separate")
    assert best.layout.max_staleness >= 1
    assert best.samples_per_s == pytest.approx(4 / 2.0, rel=0.05)


def test_of_equally_fast_layouts_the_freshest_and_smallest_comes_first() -> None:
    # The learner takes no time, so that nothing is gained by sampling while it works, nor by more workers.
    calibrated = calibration([pair(10)], SHARED, LearnerRates(0.0, 0.0), on_gpus())
    best, *_ = search(calibrated, Hardware(gpus=2), {"rollout.max_staleness": 2, "engine.placement": "separate"})
    assert best.layout.max_staleness == 0
    assert best.layout.workers == 1


def test_idle_workers_get_no_others_beside_them() -> None:
    calibrated = calibration([pair(10)], SHARED, LearnerRates(0.0, 0.0), on_gpus())
    found = search(calibrated, Hardware(gpus=4), {"rollout.max_staleness": 0})
    assert {one.layout.workers for one in found} == {1}
    given = search(calibrated, Hardware(gpus=4), {"rollout.max_staleness": 0, "rollout.workers": 3})
    assert {one.layout.workers for one in given} == {3}


def test_workers_are_added_where_they_compute() -> None:
    calibrated = calibration([pair(10, worker_s=1.0)], EngineRates(0.0, 0.001, 0.0), recorded=on_gpus())
    best, *_ = search(calibrated, Hardware(gpus=4), {"rollout.max_staleness": 0})
    assert best.layout.workers > 1


def test_a_search_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated = calibration([pair(10)], SHARED, LearnerRates(0.0, 0.0), config())
    monkeypatch.setattr(module, "forecast", lambda *_: pytest.fail("it plays a layout"))
    with pytest.raises(ConfigError, match=r"^rollout\.max_staleness 65: "):
        search(calibrated, Hardware(cores=4), {"rollout.max_staleness": 65})


def test_hardware_that_nothing_fits_is_refused() -> None:
    calibrated = calibration([pair(10)], SHARED, LearnerRates(0.0, 0.0), on_gpus())
    with pytest.raises(ConfigError, match="no layout fits 1 GPU"):
        search(calibrated, Hardware(gpus=1), {"engine.placement": "separate"})
    with pytest.raises(ConfigError, match=r"recorded on GPUs, which say nothing about 4 CPU cores: give --gpus"):
        search(calibrated, Hardware(cores=4), {})
    with pytest.raises(ConfigError, match=r"cannot follow rollout.max_tokens"):
        search(calibrated, Hardware(gpus=4), {"rollout.max_tokens": 1})
