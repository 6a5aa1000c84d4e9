"""From an entry of `reward.models` to the client that asks it."""

from __future__ import annotations

import os

from agentrl.config.schema import RewardModelKeys
from agentrl.errors import ConfigError
from agentrl.reward_models.client import RewardModel
from agentrl.reward_models.judge import PATTERN, PROMPT, Judge

UNKNOWN = "http://127.0.0.1"
"""Address of a model that the run serves, until it has started."""


def client_of(keys: RewardModelKeys, timeout_s: float, served_token: str = "") -> RewardModel | Judge:
    """Return the client of a reward model. Raises ConfigError for what it cannot use."""
    if keys.token_env and not os.environ.get(keys.token_env):
        raise ConfigError(f"reward model {keys.name}: the environment variable {keys.token_env} is not set")
    token = os.environ[keys.token_env] if keys.token_env else ""
    if not keys.judge:
        url, token = (keys.url, token) if keys.url else (UNKNOWN, served_token)
        return RewardModel(url, name=keys.name, weight=keys.weight, token=token, timeout_s=timeout_s)
    return Judge(
        keys.url or "",
        keys.judge,
        prompt=keys.prompt or PROMPT,
        pattern=keys.pattern or PATTERN,
        bounds=keys.bounds,
        name=keys.name,
        weight=keys.weight,
        token=token,
        timeout_s=timeout_s,
    )
