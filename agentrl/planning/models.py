"""The models of a run: those that it trains, those that score, those that engines serve."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentrl.algorithms.base import RunShape
from agentrl.algorithms.registry import make_algorithm
from agentrl.config.models import other_models
from agentrl.config.schema import Config
from agentrl.planning.shape import ModelReader, ModelShape


@dataclass(frozen=True, slots=True)
class RunModels:
    """Shapes by role, of which an evaluation, which does not learn, has neither critic nor frozen models.

    `frozen` are the reference and the teacher, `rewards` the reward models that the run serves, `roles` the models that
    play roles, each with its context. `has_old` is true if the policy computes log probabilities before an update,
    `reference_moves` if the reference follows the policy.
    """

    policy: ModelShape
    learns: bool = True
    critic: ModelShape | None = None
    frozen: tuple[ModelShape, ...] = ()
    rewards: tuple[ModelShape, ...] = ()
    roles: tuple[tuple[ModelShape, int], ...] = ()
    has_old: bool = False
    reference_moves: bool = False

    @classmethod
    def of(cls, config: Config, reader: ModelReader, *, learns: bool = True) -> RunModels:
        """Return the models that a resolved configuration names. Raises ConfigError for one that cannot be read."""
        policy = reader.shape(config.model.name)
        roles = tuple((reader.shape(name), context) for name, context in config.role_models.items())
        rewards = tuple(reader.reward_shape(keys.model or "") for keys in config.reward.served)
        if not learns:
            return cls(policy, learns=False, rewards=rewards, roles=roles)
        algorithm = make_algorithm(config.algorithm, RunShape.of(config))
        columns, others = algorithm.requirements.columns, other_models(config)
        frozen = algorithm.frozen_columns(has_adapters=bool(config.lora.rank))
        shapes = [policy] * ("reference" in frozen)
        shapes += [reader.shape(name) for role, name in others.items() if role == "teacher" and role in frozen]
        critic = others.get("critic", config.model.name)
        return cls(
            policy,
            critic=reader.reward_shape(critic) if "values" in columns else None,
            frozen=tuple(shapes),
            rewards=rewards,
            roles=roles,
            has_old="old" in columns or config.learner.updates > 1,
            reference_moves=algorithm.config.reference_every > 0,
        )

    def with_adapters(self, config: Config) -> RunModels:
        """Return the models of the run `config` once it trains adapters: the policy without them is the reference.

        One that moves stays a model of its own.
        """
        frozen = make_algorithm(config.algorithm, RunShape.of(config)).frozen_columns
        dropped = frozen(has_adapters=False) - frozen(has_adapters=True)
        return replace(self, frozen=self.frozen[len(dropped) :])  # the reference is the first
