"""What a configuration means for the rollout: the plans of the environments and the settings of the scheduler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from agentrl.algorithms.base import Algorithm
from agentrl.config.schema import Config, EnvSection
from agentrl.errors import ConfigError
from agentrl.rollout.groups import RolloutSettings
from agentrl.rollout.task_order import EnvPlan, stable_hash
from agentrl.types import EpisodeSettings


def env_plans(
    config: Config, tasks: Mapping[str, int | None], with_group_rewards: Collection[str] = ()
) -> tuple[EnvPlan, ...]:
    """Return the plan of each environment; `tasks` are the lengths of the training splits, None for endless ones."""
    return tuple(
        EnvPlan(
            label=env.label,
            episode=episode_settings(config, env),
            seed=episode_seed(config, env),
            weight=env.weight,
            tasks=tasks[env.label],
            has_group_rewards=env.label in with_group_rewards,
            concurrency=config.rollout_of(env).concurrency,
        )
        for env in config.env
    )


def check_curriculum(config: Config, is_endless: Sequence[bool]) -> None:
    """Raise ConfigError for a curriculum if the tasks of all environments are endless."""
    if config.rollout.curriculum != "none" and all(is_endless):
        raise ConfigError(
            "rollout.curriculum learns from earlier visits of a task, but the tasks are endless, so that none comes "
            "again: set rollout.curriculum none"
        )


def rollout_settings(config: Config, algorithm: Algorithm, plans: tuple[EnvPlan, ...]) -> RolloutSettings:
    """Return the settings of the scheduler."""
    rollout = config.rollout
    check_curriculum(config, [plan.tasks is None for plan in plans])
    return RolloutSettings(
        seed=config.seed,
        prompts=rollout.prompts,
        group_size=rollout.group_size,
        greedy=algorithm.requirements.greedy,
        envs=plans,
        max_staleness=rollout.max_staleness,
        on_stale=rollout.on_stale,
        max_invalid=rollout.max_invalid,
        min_valid=algorithm.requirements.group_size,
        max_filtered_batches=algorithm.config.max_filtered_batches,
        steps=config.steps,
        has_curriculum=rollout.curriculum == "solve_rate",
    )


def episode_seed(config: Config, env: EnvSection) -> int:
    """Return the seed of an environment's episodes: the run's for the first, so that no two sample with the same."""
    return config.seed if env is config.env[0] else stable_hash(config.seed, "env", env.label)


def episode_settings(config: Config, env: EnvSection) -> EpisodeSettings:
    """Return the settings of training episodes in an environment."""
    rollout = config.rollout_of(env)
    return EpisodeSettings(
        temperature=rollout.temperature,
        max_tokens=rollout.max_tokens,
        max_turns=rollout.max_turns,
        episode_timeout_s=rollout.episode_timeout_s,
        turn_timeout_s=rollout.turn_timeout_s,
    )
