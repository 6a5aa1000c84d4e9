"""The numbers of ranks and engines that a run chooses: they can run wherever any numbers can."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentrl.cluster.placement import Placement
from agentrl.config.machine import Machine, are_placed, together
from agentrl.config.resolve import resolve_run
from agentrl.config.schema import Config
from agentrl.errors import ConfigError
from tests.unit.config.test_machines import machines
from tests.unit.config.test_resolve import LAPTOP

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
MODELS = [{"name": name, "model": "./rm"} for name in ("one", "two", "three")]
REWARD = {"models": st.integers(1, 3).map(lambda n: MODELS[:n]), "gpus": st.sampled_from((0.5, 0.6, 1, 2, 3))}
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


@given(gpus=st.lists(st.integers(0, 8), min_size=1, max_size=4).filter(any), keys=KEYS, learns=st.booleans())
@example([4, 3], keys_with(engine={"tensor_parallel": 2}, reward={"models": MODELS[:1], "gpus": 3}), True)
@example([3, 4, 3], keys_with(engine={"tensor_parallel": 2}, reward={"models": MODELS[:1], "gpus": 3}), False)
@example([3, 1], keys_with(reward={"models": MODELS, "gpus": 0.6}), True)
@settings(max_examples=200)
def test_what_is_accepted_is_placed(gpus: list[int], keys: Keys, learns: bool) -> None:
    machine = machines(*gpus)
    with suppress(ConfigError):
        config = resolve_run(Config.model_validate(keys), machine, learns=learns)
        assert resolve_run(config, machine, learns=learns) == config
        bundles = Placement(config).bundles
        assert bundles is not None
        assert all(bundle["GPU"] % 1 == 0 for bundle in bundles), "a share of a GPU is none of a machine's whole ones"
        assert are_placed(gpus, Counter(int(bundle["GPU"]) for bundle in bundles).items())


@pytest.mark.parametrize(
    "keys",
    [
        {"engine": {"nodes": "fast"}, "learner": {"nodes": "big"}},
        {"learner": {"nodes": "big"}},
        {"weights": {"transfer": "nccl"}},
    ],
)
def test_ranks_that_are_asked_for_elsewhere_share_no_gpus(keys: Keys) -> None:
    config = resolve_run(Config.model_validate(keys), machines(16))
    assert (config.engine.placement, config.engine.count, config.learner.ranks) == ("separate", 8, 8)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"engine": {"nodes": "fast"}, "learner": {"nodes": "big"}},
            "engine.nodes fast and learner.nodes big: engine.count and learner.ranks would be chosen",
        ),
        (
            {"engine": {"nodes": "fast", "count": 8}, "learner": {"nodes": "fast"}},
            "engine.nodes fast and learner.nodes fast: learner.ranks would be chosen",
        ),
        ({"learner": {"nodes": "big", "ranks": 16}}, "learner.nodes big: engine.count would be chosen"),
        (
            {"critic": {"placement": "separate", "nodes": "big"}},
            "critic.nodes big: engine.count and learner.ranks would be",
        ),
        ({"scorers": {"placement": "separate", "nodes": "big"}}, "scorers.nodes big: engine.count and learner.ranks"),
        ({"reward": {"models": MODELS[:1], "nodes": "big"}}, "reward.nodes big: engine.count and learner.ranks"),
    ],
)
def test_numbers_are_not_chosen_for_all_machines_where_a_role_may_use_only_some(keys: Keys, words: str) -> None:
    config = Config.model_validate({"algorithm": {"name": "ppo"}} | keys)
    with pytest.raises(ConfigError, match=f"^{re.escape(words)}"):
        resolve_run(config, machines(8, 8, 8))
    assert resolve_run(config, machines(0, 24)).engine.count, "one machine has all GPUs"
    assert resolve_run(config, together([LAPTOP] * 3)).engine.count, "and CPUs are not reserved"


@pytest.mark.parametrize("given", [{"engine": {"count": 8}}, {"learner": {"ranks": 8}}])
def test_a_number_that_follows_from_the_other_is_not_chosen_for_all_machines(given: Keys) -> None:
    shared = {"nodes": "fast", "placement": "colocate"} | given.get("engine", {})
    config = resolve_run(Config.model_validate(given | {"engine": shared}), machines(8, 8))
    assert (config.engine.count, config.learner.ranks) == (8, 8)


def test_numbers_that_are_given_are_taken_on_some_of_the_machines() -> None:
    keys = {"engine": {"nodes": "fast", "count": 8}, "learner": {"nodes": "big", "ranks": 16}}
    config = resolve_run(Config.model_validate(keys), machines(8, 8, 8))
    assert (config.engine.count, config.learner.ranks) == (8, 16)
    assert resolve_run(config, machines(8, 8, 8)) == config
    workers = Config.model_validate({"rollout": {"nodes": "big"}})
    assert resolve_run(workers, machines(8, 8)).engine.count == 16, "workers have no GPUs"


def test_an_evaluation_on_some_of_the_machines_needs_only_the_number_of_its_engines() -> None:
    with pytest.raises(ConfigError, match=r"^engine\.nodes fast: engine\.count would be chosen"):
        resolve_run(Config.model_validate({"engine": {"nodes": "fast"}}), machines(8, 8), learns=False)
    keys = {"engine": {"nodes": "fast", "count": 8}}
    assert resolve_run(Config.model_validate(keys), machines(8, 8), learns=False).engine.count == 8


@pytest.mark.parametrize(
    ("gpus", "keys", "ranks", "engines"),
    [
        ((8, 8, 8), {"engine": {"tensor_parallel": 8}, "rollout": {"max_staleness": 1}}, 16, 1),
        ((*[1] * 12, 4), {"engine": {"tensor_parallel": 4}}, 12, 1),
        ((5,), {"engine": {"tensor_parallel": 2}, "rollout": {"max_staleness": 1}}, 3, 1),
    ],
)
def test_ranks_get_what_engines_cannot_use(gpus: tuple[int, ...], keys: Keys, ranks: int, engines: int) -> None:
    config = resolve_run(Config.model_validate(keys), machines(*gpus))
    assert (config.learner.ranks, config.engine.count) == (ranks, engines)


@pytest.mark.parametrize("learns", [True, False])
def test_no_engine_is_without_an_episode(*, learns: bool) -> None:
    machine = machines(*[8] * 256)
    engine = resolve_run(Config(), machine, learns=learns).engine
    episodes = {True: Config().rollout.prompts * Config().rollout.group_size, False: Config().eval.tasks * 16}
    assert engine.count == episodes[learns]
