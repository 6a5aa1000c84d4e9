"""The adapter: what both lanes, verifiers 0.3 and 0.4, have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, create_model

from agentrl.env import Adapter, AgentEnv, EnvConfig, Limits, Policy, Task
from agentrl.errors import AgentRLError
from agentrl_verifiers.library import Table


class ServiceError(AgentRLError):
    """What an environment of verifiers needs besides the policy failed: a sandbox, a tunnel, the model of a judge."""


class VerifiersConfig(EnvConfig):
    """The `--env.*` keys of every environment; its own arguments come after them."""

    args: Table = Field({}, description="further arguments of the environment: a table, or JSON")
    heldout_share: float = Field(
        0.1, gt=0, lt=1, description='share of the tasks that belong to "test" where the environment has no such split'
    )


class VerifiersEnv(Adapter, AgentEnv):
    """An environment of verifiers, which calls the policy itself. Its rewards and metrics are signals."""

    Config = VerifiersConfig
    config: VerifiersConfig
    limits = Limits(max_turns=64, load_timeout_s=1800, score_timeout_s=600)
    wraps = ("verifiers",)

    @classmethod
    def with_keys(cls, name: str, keys: Mapping[str, Any], **members: object) -> type[Self]:
        """Return the subclass of an id whose own arguments are `--env.*` keys, besides those of this adapter."""
        free = {key: field for key, field in keys.items() if key not in cls.Config.model_fields}
        config = create_model(cls.Config.__name__, __base__=cls.Config, **free)
        return cls.subclass(name, Config=config, **members)

    def arguments(self, own: type[EnvConfig]) -> dict[str, Any]:
        """Return the arguments of the environment that were set as keys; `own` has those of the adapter."""
        return {key: getattr(self.config, key) for key in self.config.model_fields_set - own.model_fields.keys()}

    def canaries(self, task: Task) -> Mapping[str, Policy]:  # noqa: ARG002
        """Return a policy that says nothing."""
        return {"silence": [""] * self.limits.max_turns}
