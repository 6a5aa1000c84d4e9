"""The numbers of ranks and engines that a run chooses: they can run wherever any numbers can."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentrl.config.machine import Machine
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from tests.unit.config.test_machines import machines

Keys = dict[str, dict[str, Any]]
SIZES = st.sampled_from((1, 2, 3, 4))
SOME = {
    "engine": {
        "tensor_parallel": SIZES,
        "pipeline_parallel": st.sampled_from((1, 2)),
        "placement": st.sampled_from(("separate", "colocate")),
        "count": SIZES,
    },
    "critic": {"placement": st.just("separate"), "ranks": SIZES},
    "scorers": {"placement": st.just("separate")},
    "rollout": {
        "prompts": st.sampled_from((1, 2, 8)),
        "group_size": st.sampled_from((2, 8)),
        "max_staleness": st.sampled_from((0, 1)),
    },
}
RANKS = (
    st.fixed_dictionaries({}, optional={"ranks": SIZES, "sequence_parallel": SIZES}),
    st.fixed_dictionaries({}, optional={"ranks": SIZES, "tensor_parallel": SIZES}),
)
REWARD = {"models": st.just([{"name": "rm", "model": "./rm"}]), "gpus": st.sampled_from((0.5, 1, 2))}
SECTIONS = {name: st.fixed_dictionaries({}, optional=keys) for name, keys in SOME.items()}
KEYS = st.fixed_dictionaries(
    {"algorithm": st.just({"name": "ppo"}), **SECTIONS, "learner": st.one_of(*RANKS)},
    optional={"reward": st.fixed_dictionaries(REWARD)},
)


def with_numbers(keys: Keys, machine: Machine) -> Iterator[Keys]:
    """The same keys with any numbers of engines and ranks, in any placement, in place of those that are not set."""

    def values(section: str, key: str, others: Iterable[Any]) -> list[Any]:
        return [keys[section][key]] if key in keys[section] else list(others)

    numbers = range(1, len(machine.gpus) + 1)
    placements = values("engine", "placement", ("separate", "colocate"))
    for placement, count, ranks in product(
        placements, values("engine", "count", numbers), values("learner", "ranks", numbers)
    ):
        engine = {**keys["engine"], "placement": placement, "count": count}
        yield {**keys, "engine": engine, "learner": {**keys["learner"], "ranks": ranks}}


def runs(keys: Keys, machine: Machine) -> bool:
    try:
        return bool(resolve_run(Config.model_validate(keys), machine))
    except ConfigError:
        return False


def keys_with(**sections: dict[str, Any]) -> Keys:
    return {"algorithm": {"name": "ppo"}} | {name: {} for name in (*SOME, "learner")} | sections


@given(gpus=st.lists(st.integers(0, 8), min_size=1, max_size=4).filter(any), keys=KEYS)
@example([6], keys_with(engine={"tensor_parallel": 4}, rollout={"max_staleness": 1}))
@example([2, 6, 2], keys_with(engine={"tensor_parallel": 4}, learner={"tensor_parallel": 3}))
@example([5], keys_with(engine={"tensor_parallel": 3}, critic={"placement": "separate"}))
@example([5], keys_with(engine={"tensor_parallel": 4}, rollout={"prompts": 1, "group_size": 2}))
@example([1, 3, 2], keys_with(engine={"pipeline_parallel": 2}, learner={"sequence_parallel": 3}))
@example([4, 3], keys_with(engine={"tensor_parallel": 4, "placement": "separate"}, scorers={"placement": "separate"}))
@settings(max_examples=200)
def test_a_run_starts_if_any_numbers_of_engines_and_ranks_can(gpus: list[int], keys: Keys) -> None:
    machine = machines(*gpus)
    if not runs(keys, machine):
        assert not [found for found in with_numbers(keys, machine) if runs(found, machine)]


@pytest.mark.parametrize("learns", [True, False])
def test_no_engine_is_without_an_episode(*, learns: bool) -> None:
    machine = machines(*[8] * 256)
    engine = resolve_run(Config(), machine, learns=learns).engine
    episodes = {True: Config().rollout.prompts * Config().rollout.group_size, False: Config().eval.tasks * 16}
    assert engine.count == episodes[learns]
