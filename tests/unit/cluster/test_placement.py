"""Where processes are: bundles that Ray can reserve, GPUs that engines and ranks share, nodes of a kind."""

from __future__ import annotations

from collections import Counter

import pytest

from agentrl.cluster.placement import ON_NODE, Place, Placement, learner_only
from agentrl.config.schema import Config

SHARED: dict[str, dict[str, object]] = {"engine": {"placement": "colocate", "count": 2}, "learner": {"ranks": 2}}


def placement(device: str = "cuda", **sections: dict[str, object]) -> Placement:
    chosen = {"engine": {"count": 1, "tensor_parallel": 1}, "learner": {"ranks": 1}}  # as on one GPU
    tree = {name: {**chosen.get(name, {}), **sections.get(name, {})} for name in {*chosen, *sections}}
    return Placement(Config.model_validate(tree).model_copy(update={"device": device}))


def taken(made: Placement) -> Counter[int | None]:
    """The GPUs of each bundle that processes take."""
    config, places = made.config, Counter[int | None]()
    for place in (
        *map(made.engine, range(config.engine.count)),
        *map(made.rank, range(config.learner.ranks)),
        *map(made.critic, range(config.critic.separate_ranks(config.learner))),
        *([made.scorers()] if config.scorers.placement == "separate" else []),
    ):
        places[place.bundle] += int(place.gpus)
    return places


def test_a_cpu_run_reserves_nothing() -> None:
    made = placement("cpu", scorers={"placement": "separate"}, critic={"placement": "separate"})
    assert made.bundles is None
    assert {made.engine(0), made.rank(0), made.worker(), made.critic(0), made.scorers()} == {Place()}


def test_separate_engines_and_ranks_have_bundles_of_their_own() -> None:
    made = placement(engine={"count": 2, "tensor_parallel": 2, "pipeline_parallel": 2}, learner={"ranks": 3})
    assert made.bundles == [{"GPU": 4}] * 2 + [{"GPU": 1.0}] * 3
    assert [made.engine(1), made.rank(0), made.rank(2)] == [Place(1, 4), Place(2, 1.0), Place(4, 1.0)]
    assert not made.sharers(0)


@pytest.mark.parametrize(("count", "tensor", "pipeline"), [(4, 1, 1), (2, 2, 1), (1, 2, 2)])
def test_ranks_own_the_gpus_that_engines_use_by_turns(count: int, tensor: int, pipeline: int) -> None:
    engine = {"placement": "colocate", "count": count, "tensor_parallel": tensor, "pipeline_parallel": pipeline}
    made, size = placement(engine=engine, learner={"ranks": 4}), tensor * pipeline
    assert made.bundles == [{"GPU": size}] * count
    assert [made.engine(n) for n in range(count)] == [Place(n, 0.0) for n in range(count)]
    sharers = [list(made.sharers(n)) for n in range(count)]
    assert [rank for ranks in sharers for rank in ranks] == list(range(4)), "every rank shares with one engine"
    assert all(made.rank(rank).bundle == n for n, ranks in enumerate(sharers) for rank in ranks)


@pytest.mark.parametrize("sections", [{}, SHARED, SHARED | {"engine": {"placement": "colocate", "tensor_parallel": 2}}])
def test_processes_take_exactly_what_is_reserved(sections: dict[str, dict[str, object]]) -> None:
    made = placement(scorers={"placement": "separate"}, critic={"placement": "separate", "ranks": 3}, **sections)
    assert made.bundles is not None
    assert taken(made) == {n: bundle["GPU"] for n, bundle in enumerate(made.bundles)}


def test_separate_scorers_have_one_more_bundle() -> None:
    apart: dict[str, object] = {"placement": "separate"}
    assert placement(**SHARED).bundles == [{"GPU": 1.0}] * 2
    assert placement(**SHARED, scorers=apart).bundles == [{"GPU": 1.0}] * 3
    assert placement(**SHARED, scorers=apart).scorers() == Place(2, 1.0)
    assert placement(scorers=apart).scorers() == Place(2, 1.0), "after an engine and a rank"


def test_a_separate_critic_has_as_many_bundles_as_the_policy_or_as_it_asks_for() -> None:
    apart: dict[str, object] = {"placement": "separate"}
    assert placement(**SHARED, critic={"ranks": 3}).bundles == [{"GPU": 1.0}] * 2, "it shares the policy's ranks"
    assert placement(**SHARED, critic=apart).bundles == [{"GPU": 1.0}] * 4
    made = placement(**SHARED, critic={**apart, "ranks": 1, "nodes": "big"}, scorers=apart)
    assert made.bundles == [{"GPU": 1.0}] * 2 + [{"GPU": 1.0, "big": ON_NODE}, {"GPU": 1.0}]
    assert (made.critic(0), made.scorers()) == (Place(2, 1.0), Place(3, 1.0))


def test_processes_are_on_the_nodes_that_their_section_names() -> None:
    nodes: dict[str, dict[str, object]] = {"engine": {"nodes": "fast"}, "learner": {"nodes": "big"}}
    on_gpus = placement(**nodes, rollout={"nodes": "many"})
    assert on_gpus.bundles == [{"GPU": 1, "fast": ON_NODE}, {"GPU": 1.0, "big": ON_NODE}]
    assert on_gpus.worker() == Place(nodes="many")
    on_cpus = placement("cpu", **nodes, rollout={"nodes": "many"})
    assert [on_cpus.engine(0).nodes, on_cpus.rank(0).nodes, on_cpus.worker().nodes] == ["fast", "big", "many"]


def test_only_processes_that_a_run_has_ask_for_their_nodes() -> None:
    named: dict[str, dict[str, object]] = {
        name: {"nodes": name} for name in ("engine", "rollout", "learner", "critic", "scorers", "reward")
    }
    named["learner"] |= {"ranks": 1}
    made = placement("cpu", **named)
    assert made.nodes == {"engine.nodes": "engine", "rollout.nodes": "rollout", "learner.nodes": "learner"}
    named["critic"] |= {"placement": "separate"}
    named["scorers"] |= {"placement": "separate"}
    named["reward"] |= {"models": [{"name": "helpful", "model": "./rm"}]}
    assert set(placement("cpu", **named).nodes) == {f"{name}.nodes" for name in named}


REWARDS: dict[str, object] = {"models": [{"name": f"rm{index}", "model": "a/b"} for index in range(3)]}


@pytest.mark.parametrize("sections", [{"learner": {"ranks": 2}}, SHARED])
def test_reward_models_share_the_gpus_of_ranks_one_after_the_other(sections: dict[str, dict[str, object]]) -> None:
    alone, made = placement(**sections), placement(**sections, reward=REWARDS | {"placement": "colocate"})
    assert made.bundles == alone.bundles, "no GPU more"
    assert [made.rank_beside(index) for index in range(3)] == [0, 1, 0]
    assert [made.reward_model(index).bundle for index in range(3)] == [made.rank(rank).bundle for rank in (0, 1, 0)]
    assert {made.reward_model(index).gpus for index in range(3)} == {0.0}, "the rank has reserved it"


def test_on_cpus_they_are_on_the_nodes_of_ranks() -> None:
    sections: dict[str, dict[str, object]] = {"learner": {"nodes": "big"}, "engine": {"nodes": "fast"}}
    made = placement("cpu", **sections, reward=REWARDS | {"placement": "colocate"})
    assert made.reward_model(0) == made.rank(0) == Place(nodes="big")


@pytest.mark.parametrize("sections", [{}, SHARED])
def test_ranks_alone_reserve_no_gpus_of_engines_scorers_or_roles(sections: dict[str, dict[str, object]]) -> None:
    apart: dict[str, object] = {"placement": "separate"}
    reward: dict[str, object] = {"models": [{"name": "good", "model": "a/b"}]}
    config = placement(scorers=apart, critic={**apart, "ranks": 2}, reward=reward, **sections).config
    made = Placement(learner_only(config))
    assert made.bundles == [{"GPU": 1.0}] * (config.learner.ranks + 2)
    assert taken(made) == dict.fromkeys(range(len(made.bundles)), 1)
