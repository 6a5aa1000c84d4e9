"""The algorithm that a configuration names, and the keys of other sections that have to match it."""

from __future__ import annotations

from agentrl.algorithms.base import Algorithm, RunShape
from agentrl.algorithms.registry import make_algorithm
from agentrl.config.schema import Config
from agentrl.config.validate import check_without_critic, decided
from agentrl.errors import ConfigError


def configured_algorithm(config: Config) -> Algorithm:
    """Make the algorithm that `config` names, which may still lack a teacher.

    Raises ConfigError if there is none, or for groups that are too small.
    """
    algorithm = make_algorithm(config.algorithm, RunShape.of(config))
    least = algorithm.requirements.group_size
    if config.rollout.group_size < least:
        raise ConfigError(
            f"algorithm {config.algorithm.name} compares at least {least} episodes per task: raise rollout.group_size"
        )
    if "values" not in algorithm.requirements.columns:
        check_without_critic(config)
    if algorithm.config.overlong_buffer > config.rollout.max_tokens > 0:
        raise ConfigError(
            f"algorithm.overlong_buffer {algorithm.config.overlong_buffer} is longer than a turn of "
            f"rollout.max_tokens {config.rollout.max_tokens}, so that every answer would be punished: lower the former"
        )
    own = [env.label for env in config.env if env.rollout and env.rollout.max_tokens]
    if algorithm.config.overlong_penalty and own:
        raise ConfigError(
            f"algorithm.overlong_penalty measures every turn against rollout.max_tokens, but {', '.join(own)} has a "
            f"max_tokens of its own: leave that out, or set algorithm.overlong_penalty 0"
        )
    check_scorers(config, algorithm)
    return algorithm


def check_scorers(config: Config, algorithm: Algorithm) -> None:
    """Raise ConfigError for keys of the scorers that do not work with the algorithm, or have no effect."""
    frozen = algorithm.frozen_columns(has_adapters=bool(config.lora.rank))
    if config.scorers.placement == "separate":
        _check_separate(config, algorithm, has_frozen=bool(frozen))
    if config.scorers.offload:
        has_critic = "values" in algorithm.requirements.columns and config.critic.placement != "separate"
        is_beside = bool(frozen) and config.scorers.placement != "separate"
        _check_offload(config, has_frozen=is_beside, has_critic=has_critic)


def _check_separate(config: Config, algorithm: Algorithm, *, has_frozen: bool) -> None:
    if not has_frozen:
        raise ConfigError(
            f"scorers.placement separate has no effect: algorithm {config.algorithm.name} has neither a teacher nor a "
            "reference beside the policy (algorithm.kl_coef 0, or lora.rank above 0): leave it out"
        )
    if algorithm.config.reference_every:
        raise ConfigError(
            f"{decided(config, 'scorers')} does not work with algorithm.reference_every: a reference that moves to the "
            "policy's weights shares the ranks that hold them. Leave one of the two out, or set scorers.placement "
            "colocate"
        )


def _check_offload(config: Config, *, has_frozen: bool, has_critic: bool) -> None:
    critic = config.critic.optimizer(config.learner)
    is_on_gpu = has_critic and not critic.offload
    if not (has_frozen or is_on_gpu):
        raise ConfigError(
            "scorers.offload has no effect: the learner's GPUs hold neither a reference or teacher nor the optimizer "
            "state of a critic: leave it out"
        )
    if is_on_gpu and critic.stage == 3:
        raise ConfigError(
            "scorers.offload does not work with a critic at ZeRO stage 3, where DeepSpeed moves the state of no "
            "optimizer but its FusedAdam: set critic.zero_stage 2 or less, or learner.offload true"
        )
