"""A run whose roles cannot be played is refused before anything heavy starts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentrl.cluster.placement import Place, Placement
from agentrl.config.loading import of_flags
from agentrl.config.schema import Config
from agentrl.errors import ConfigError, UnknownNameError
from agentrl.training.eval_config import evaluation_config
from agentrl.training.inputs import anchored
from agentrl.training.roles import check_roles
from tests.tiny import tiny_model
from tests.unit.reward_models.test_client import answering
from tests.unit.roles.test_remote import said

JUDGED = {"judge": "Scores politeness."}
"""The roles of an environment, with their meanings."""


def config(*envs: dict[str, Any], **roles: Any) -> Config:
    return Config.model_validate({"env": list(envs) or [{"name": "./a.py"}], "roles": roles})


def test_a_role_that_nobody_plays_is_refused_with_its_meaning_and_the_keys() -> None:
    with pytest.raises(ConfigError, match=r"a asks the role 'judge' \(Scores politeness\.\), .* set roles.judge"):
        check_roles(config(), [JUDGED])


def test_a_role_that_no_environment_has_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown role 'jugde'. Did you mean 'judge'"):
        check_roles(config(jugde={"model": "policy"}), [JUDGED])
    with pytest.raises(UnknownNameError, match=r"unknown role 'user'.*none of a:"):
        check_roles(config({"name": "./a.py", "roles": {"user": {"model": "policy"}}}), [{}])


def test_environments_share_the_roles_of_the_run_or_have_their_own() -> None:
    own = {"name": "./b.py", "roles": {"judge": {"model": "policy", "temperature": 1.0}}}
    both = config({"name": "./a.py"}, own, judge={"model": "policy"})
    check_roles(both, [JUDGED, JUDGED])
    assert [both.roles_of(env)["judge"].temperature for env in both.env] == [0.0, 1.0]
    check_roles(config({"name": "./a.py"}, own), [{}, JUDGED])


def test_the_policy_needs_no_check() -> None:
    check_roles(config(judge={"model": "policy"}), [JUDGED])


def test_a_model_that_the_run_cannot_serve_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"roles.judge.model: model './none': there is no such folder.*roles.judge.url"
    ):
        check_roles(config(judge={"model": "./none"}), [JUDGED])
    judge = tiny_model(tmp_path, max_length=64)
    with pytest.raises(ConfigError, match=r"roles.judge.max_context is 65, but .* reads at most 64"):
        check_roles(config(judge={"model": str(judge), "max_context": 65}), [JUDGED])
    check_roles(config(judge={"model": str(judge), "max_context": 64}), [JUDGED])
    short = {"model": str(judge), "max_context": 64}
    with pytest.raises(ConfigError, match=r"roles.user.max_context is 1024, but"):
        check_roles(config(judge=short, user={"model": str(judge)}), [{**JUDGED, "user": ""}])


def test_a_role_that_nobody_asks_is_refused() -> None:
    own = {"name": "./b.py", "roles": {"judge": {"model": "policy"}}}
    with pytest.raises(ConfigError, match=r"roles.judge: every environment that asks it has its own"):
        check_roles(config({"name": "./a.py"}, own, judge={"model": "./none"}), [{}, JUDGED])


def test_an_evaluation_reads_roles() -> None:
    given = evaluation_config(None, of_flags([("roles.judge.model", "policy")]))
    assert given.roles["judge"].model == "policy"


def test_roles_of_one_model_share_its_engine() -> None:
    own = {"name": "./b.py", "roles": {"judge": {"model": "./big", "max_context": 4096}, "user": {"model": "policy"}}}
    both = config({"name": "./a.py"}, own, judge={"model": "./big"}, guide={"url": "http://127.0.0.1:1", "model": "x"})
    assert both.role_models == {"./big": 4096}
    both = both.model_copy(
        update={"engine": both.engine.model_copy(update={"placement": "colocate", "count": 1}), "device": "cuda"}
    )
    placement = Placement(both)
    assert placement.bundles == [{"GPU": 1.0}] * 2
    assert (placement.role(0), placement.engine(0)) == (Place(1, 1.0), Place(0, 0.0))
    assert anchored(both).role_models == {str(Path("big").absolute()): 4096}


def test_a_key_that_is_not_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    keys = {"url": "http://127.0.0.1:1/v1", "model": "m", "api_key_env": "JUDGE_KEY"}
    with pytest.raises(ConfigError, match=r"roles.judge.api_key_env: the environment variable JUDGE_KEY is not set"):
        check_roles(config(judge=keys), [JUDGED])


async def test_an_endpoint_that_does_not_answer_is_refused_and_one_that_does_is_asked_once() -> None:
    async with answering((401, b"wrong key")) as (url, _):
        with pytest.raises(ConfigError, match=r"role judge: .*status 401: wrong key. Check roles.judge.url"):
            await asyncio.to_thread(check_roles, config(judge={"url": url, "model": "m"}), [JUDGED])
    async with answering(said("OK")) as (url, asked):
        await asyncio.to_thread(check_roles, config(judge={"url": url, "model": "m"}), [JUDGED])
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"model": ""}, "roles.judge.model must not be empty"),
        ({"model": "policy", "max_context": 9}, "has a max_context, which is for models that the run serves"),
        ({"model": "./big", "token_budget": 9}, "has a token_budget, which is for endpoints"),
        ({"model": "policy", "concurrency": 9}, "has a concurrency, which is for endpoints"),
        ({"model": "policy", "api_key_env": "KEY"}, "has an api_key_env without a url"),
        ({"url": "http://127.0.0.1:1"}, "roles.judge.model"),
        ({"model": "policy", "temperatur": 1}, "roles.judge.temperatur"),
    ],
)
def test_keys_of_a_role_are_checked(keys: dict[str, Any], fault: str) -> None:
    from agentrl.config.loading import load, of_arguments

    with pytest.raises(ConfigError, match=fault):
        load(None, of_arguments({"roles": {"judge": keys}}))
