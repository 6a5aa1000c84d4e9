"""From an entry of `reward.models` to the client that asks it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from agentrl.config.schema import RewardModelKeys
from agentrl.config.tokens import token_in
from agentrl.errors import ConfigError, RoleError
from agentrl.reward_models.client import RewardModel, ServedRewardModel
from agentrl.reward_models.judge import PATTERN, PROMPT, EngineJudge, Judge, Verdicts
from agentrl.roles import RoleReply
from agentrl.roles.poster import CONNECT_S, Poster, checked_urls
from agentrl.types import Signal

Ask = Callable[[str, str], Awaitable[RoleReply]]
"""Asks the judge of a name on its engine; see `EngineJudge`."""
STARTING_S, RETRY_S = 60.0, 1.0
"""How long a run waits for a server that starts along with it, and between two attempts to connect."""


async def _nobody(name: str, question: str) -> RoleReply:  # noqa: ARG001 (the signature of Ask)
    raise RoleError(f"the judge {name} has no engine")


def verdicts_of(keys: RewardModelKeys) -> Verdicts:
    """Return what reads the answers of a judge. Raises ConfigError for keys that cannot be used."""
    blank = Signal(keys.name, None, keys.weight, verifier=keys.model or "")
    return Verdicts(blank, prompt=keys.prompt or PROMPT, pattern=keys.pattern or PATTERN, bounds=keys.bounds)


def client_of(
    keys: RewardModelKeys, timeout_s: float, served_token: str = "", replacement_s: float = 0.0, ask: Ask = _nobody
) -> RewardModel | Judge | EngineJudge:
    """Return the client of a reward model. Raises ConfigError for what it cannot use.

    `served_token` and `replacement_s` are those of a model that the run serves; see `ServedRewardModel`.
    """
    token = token_in(keys.token_env or "")
    if keys.token_env and not token:
        raise ConfigError(f"reward model {keys.name}: the environment variable {keys.token_env} is not set")
    if keys.is_sampled:
        return EngineJudge(verdicts_of(keys), partial(ask, keys.name))
    if not keys.url:
        return ServedRewardModel(keys.name, keys.weight, served_token, timeout_s, replacement_s)
    if not keys.judge:
        return RewardModel(keys.url, name=keys.name, weight=keys.weight, token=token, timeout_s=timeout_s)
    return Judge(
        keys.url,
        str(keys.judge),
        prompt=keys.prompt or PROMPT,
        pattern=keys.pattern or PATTERN,
        bounds=keys.bounds,
        name=keys.name,
        weight=keys.weight,
        token=token,
        timeout_s=timeout_s,
        max_tokens=keys.max_tokens,
    )


async def check_servers(models: Sequence[RewardModelKeys]) -> None:
    """Raise ConfigError for a reward model at a `url` of which no server takes connections within STARTING_S."""
    await asyncio.gather(*(_check_server(keys.name, keys.url) for keys in models if keys.url))


async def _check_server(name: str, url: str) -> None:
    poster = Poster(checked_urls(url, f"reward model {name}"), "", CONNECT_S, 1)
    ends_at, about = time.monotonic() + STARTING_S, f"reward model {name}: no connection to"
    try:
        if fault := await poster.fault():
            print(f"{about} {fault}. It has {STARTING_S:g} s to start.", flush=True)
        while fault:
            if time.monotonic() >= ends_at:
                raise ConfigError(f"{about} {fault}. Start its server, or correct its url in reward.models")
            await asyncio.sleep(RETRY_S)
            fault = await poster.fault()
    finally:
        await poster.aclose()
