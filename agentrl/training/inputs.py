"""Inputs of a run: its environment, its model and the run it continues, checked before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.configured import configured_algorithm
from agentrl.algorithms.own_loss import OwnLoss
from agentrl.algorithms.rehearsal import rehearse
from agentrl.config.embedded import EMBEDDED
from agentrl.config.models import (
    check_attention,
    check_context,
    check_rotary,
    config_json,
    description,
    encode,
    locate,
    other_models,
    tokenizer,
)
from agentrl.config.schema import Config, EnvSection, PluginSection, RewardModelKeys, RoleKeys
from agentrl.config.values import anchored_model
from agentrl.engine.vllm.options import check_options as check_vllm_options
from agentrl.env.driver.loop import run_on_private_loop
from agentrl.env.dry_run.verdict import DryRunRequest
from agentrl.errors import ConfigError, catch
from agentrl.hosting.environments import inspect_env
from agentrl.hosting.inspection import Inspection
from agentrl.learner.options import check_options as check_deepspeed_options
from agentrl.packaging.clashes import check_clashes
from agentrl.packaging.lock import check_lock
from agentrl.plugins.files import absolute, anchored_value
from agentrl.records.checkpoints import steps_in
from agentrl.records.folder import RunFolder, check_free
from agentrl.records.manifest import PluginSource, build_manifest, files_in, plugin_source, write_manifest
from agentrl.report import summary
from agentrl.report.words import visible
from agentrl.reward_models.keys import check_servers, client_of, verdicts_of
from agentrl.training.roles import check_roles
from agentrl.training.rollouts import check_curriculum
from agentrl.types import HELD_OUT, TRAIN

CHARACTERS_PER_TOKEN = 4
KEYS = {"critic": "critic.model", "teacher": "algorithm.teacher"}
"""Keys of the models beside the policy."""
P = TypeVar("P", bound=PluginSection)


@dataclass(frozen=True)
class RunInputs:
    """The environments, the model and the algorithm of a run."""

    envs: tuple[Callable[[], PluginSource], ...]
    """Return the source of each environment."""
    model: Path
    notice: str
    """What the environments found on this machine, and what their authors should know."""
    algorithm: type[Algorithm] | None = None
    """None for an evaluation."""
    loss: OwnLoss | None = None
    """The author's function that replaces the loss, if there is one."""

    @classmethod
    def of(cls, config: Config, *splits: str) -> RunInputs:
        """Return the inputs that `config` names; each environment plays an episode of the first task of each split.

        The default splits are those of training; an evaluation names its own and needs no algorithm. Raises
        ConfigError for an algorithm, an environment, a key of them or a model that does not exist, for an environment
        that cannot run on this machine, and for one that nothing can learn from.
        """
        algorithm = None if splits else checked_algorithm(config)
        check_vllm_options(config.engine.vllm)
        check_clashes(env.name for env in config.env if not env.python)
        if config.env_lock:
            check_lock(config.env_lock, config.env)
        wanted = splits or ((TRAIN, HELD_OUT) if config.eval.tasks else (TRAIN,))
        template = _with_template(config.model.name)
        tried = [_tried(config, env, wanted, template) for env in config.env]
        check_roles(config, [one.roles for one in tried])
        if algorithm:
            check_curriculum(config, [TRAIN in one.endless for one in tried])
        model = locate(config.model.name)
        _check_reward_models(config)
        check_context(model, config.model.max_context, "model.max_context")
        if algorithm:
            check_attention(model)
            check_rotary(model, config.model.max_context)
            check_other_models(config, model)
        notes = [
            f"{env.label}: {note}" if len(tried) > 1 else note
            for env, one in zip(config.env, tried, strict=True)
            for note in (*one.notes, _prompt_note(one.prompt, config, env, model))
            if note
        ]
        envs = tuple(one.source for one in tried)
        if algorithm is None:
            return cls(envs, model, " ".join(notes))
        return cls(envs, model, " ".join(notes), type(algorithm), algorithm.checked_loss())

    @classmethod
    def for_resume(cls, config: Config, folder: RunFolder) -> RunInputs:
        """Return the inputs of the run in `folder`, which is resumed.

        The notice names what changed since it started.
        """
        inputs = cls.of(config)
        changed = inputs.write_manifest(config, folder)
        return replace(inputs, notice=" ".join(filter(None, [inputs.notice, changed])))

    def write_manifest(self, config: Config, folder: RunFolder) -> str:
        """Write versions and hashes of all inputs into `folder`; returns what changed since the run started, or "".

        Raises ConfigError if a model changed.
        """
        envs = [source() for source in self.envs]
        algorithm = plugin_source(config.algorithm.name, self.algorithm) if self.algorithm else None
        loss = plugin_source(self.loss.name, self.loss.function) if self.loss else None
        data = chain.from_iterable(files_in(section.options) for section in (*config.env, config.algorithm))
        found = build_manifest(envs, data, self._models(config), algorithm, loss)
        return write_manifest(folder, replace(found, after=max(steps_in(folder.checkpoints), default=0)))

    def _models(self, config: Config) -> dict[str, Path]:
        """Return the folders of all models that the run loads, by role."""
        names = {f"reward model {keys.name}": keys.model or "" for keys in config.reward.served}
        names |= {f"role model {name}": name for name in config.role_models}
        names |= other_models(config) if self.algorithm else {}
        return {"model": self.model} | {role: locate(name) for role, name in names.items()}

    def print_notice(self) -> None:
        """Print the notice at once: heavy imports come next."""
        if self.notice:
            print(visible(self.notice), flush=True)


# --------------------------------------------------------------------------------------------------------------
# The environments.


def _with_template(model: str) -> str:
    """Return the folder of a model with its tokenizer; "" for the embedded one, which may not be there yet."""
    return "" if model in ("", EMBEDDED) else str(locate(model, has_weights=False))


def _tried(config: Config, section: EnvSection, splits: Sequence[str], model: str) -> Inspection:
    """Check one environment where it will run, and play an episode of it. Raises ConfigError."""
    max_turns = config.rollout_of(section).max_turns
    request = DryRunRequest(section.name, section.options, splits, config.seed, max_turns, model)
    return inspect_env(request, section.python, has_reward_models=bool(config.reward.models))


def check_settings(config: Config) -> None:
    """Raise ConfigError for what a training run is refused for that needs neither environments nor weights."""
    checked_algorithm(config)
    check_vllm_options(config.engine.vllm)
    for keys in config.reward.models:
        if keys.judge:
            verdicts_of(keys)
        if keys.is_loaded:
            _check_served(keys, _described(keys.model or ""), keys.max_context or config.model.max_context)
    model = _described(config.model.name)
    check_context(model, config.model.max_context, "model.max_context")
    check_attention(model)
    check_rotary(model, config.model.max_context)
    for role, name in other_models(config).items():
        check_attention(_described(name), KEYS[role])
        check_rotary(_described(name), config.model.max_context)
    roles = {f"roles.{name}.max_context": keys for env in config.env for name, keys in config.roles_of(env).items()}
    served = [(key, keys.model, keys.max_context) for key, keys in roles.items() if keys.is_served]
    for key, name, context in served:
        check_context(_described(name), context or config.model.max_context, key)


def _described(model: str) -> Path:
    """Return a folder with the config.json of a model, which may have no weights."""
    return config_json(model).parent


def checked_algorithm(config: Config) -> Algorithm:
    """Make the algorithm of a run, and try it. Raises ConfigError if a run cannot train as `config` says."""
    algorithm = algorithm_of(config)
    check_rewards(config, algorithm)
    rehearse(algorithm)
    check_learner_options(config, algorithm)
    return algorithm


def check_learner_options(config: Config, algorithm: Algorithm) -> None:
    """Raise ConfigError for options of DeepSpeed that the policy or the critic cannot have."""
    learner, sections = config.learner, [("learner.ranks", config.learner)]
    if "values" in algorithm.requirements.columns:
        is_separate = config.critic.placement == "separate"
        sections.append(("critic.ranks" if is_separate else "learner.ranks", config.critic.optimizer(learner)))
    ranks = {key: section.ranks for key, section in sections if section.stage == 3}
    stage = max(section.stage for _, section in sections)
    check_deepspeed_options(learner.deepspeed, config.device, stage, ranks)


def algorithm_of(config: Config) -> Algorithm:
    """Make the algorithm of a run. Raises ConfigError if it cannot train as `config` says."""
    algorithm = configured_algorithm(config)
    if "teacher" in algorithm.requirements.columns and not algorithm.config.teacher:
        raise ConfigError(f"algorithm {config.algorithm.name} learns from a teacher: set algorithm.teacher to a model")
    return algorithm


def check_rewards(config: Config, algorithm: Algorithm) -> None:
    """Raise ConfigError for an algorithm that needs the score of a reward model, in a run without one."""
    if algorithm.needs.rewards and not config.reward.models:
        raise ConfigError(
            f"algorithm {config.algorithm.name} learns from the score of a reward model: set reward.models "
            "(docs/reward-models.md)"
        )


# --------------------------------------------------------------------------------------------------------------
# The model: its context, and whether the first prompt fits into it.


def _check_reward_models(config: Config) -> None:
    """Raise ConfigError for a reward model that does not exist or is none, or that no server answers for."""
    for keys in config.reward.models:
        client_of(keys, config.reward.score_timeout_s)
        if keys.is_loaded:
            _check_served(keys, locate(keys.model or ""), keys.max_context or config.model.max_context)
    run_on_private_loop(check_servers(config.reward.models))


def _check_served(keys: RewardModelKeys, model: Path, max_context: int) -> None:
    """Raise ConfigError if the reward model in a folder, of which config.json is read, is of the wrong kind."""
    name, about = keys.model, f"reward model {keys.name}"
    kinds = description(model).get("architectures") or ["unknown"]
    is_classifier = any(kind.endswith("ForSequenceClassification") for kind in kinds)
    if keys.has_engine and is_classifier:
        raise ConfigError(f"{about}: {name} is a {', '.join(kinds)}, which writes no text: leave judge out")
    if keys.has_engine:
        check_context(model, max_context, f"{about}: max_context")
    elif not is_classifier:
        raise ConfigError(
            f"{about}: {name} is a {', '.join(kinds)}; a reward model is saved as a ...ForSequenceClassification. To "
            "score with a chat model, set judge to true"
        )


def check_other_models(config: Config, model: Path) -> None:
    """Raise ConfigError if a critic or a teacher is missing, or reads other tokens than the policy."""
    for role, name in other_models(config).items():
        check_attention(locate(name), KEYS[role])
        check_rotary(locate(name), config.model.max_context)
        if tokenizer(locate(name)).get_vocab() != tokenizer(model).get_vocab():
            raise ConfigError(
                f"the {role} {name} and the model {config.model.name or model} have different vocabularies, but they "
                "read the same tokens: choose two models of one family"
            )


def _prompt_note(prompt: str, config: Config, env: EnvSection, model: Path) -> str:
    """Return a warning if the first prompt leaves no room for an answer, else "".

    Counts the text alone; a chat template and the descriptions of tools take more tokens.
    """
    context, wanted = config.model.max_context, max(1, config.rollout_of(env).max_tokens)
    text = prompt.encode(errors="replace")
    if len(text) + wanted <= context:  # no token is shorter than a byte
        return ""
    ids = catch(encode, text.decode(), model).value
    tokens = len(prompt) // CHARACTERS_PER_TOKEN if ids is None else len(ids)
    if tokens + wanted <= context:
        return ""
    return (
        f"The first prompt has about {tokens:,} tokens, which leaves {max(0, context - tokens)} of model.max_context "
        f"{context} for an answer of up to {wanted} (rollout.max_tokens): raise model.max_context or shorten the "
        "prompt. A prompt that leaves no room is neither answered nor trained on."
    )


# --------------------------------------------------------------------------------------------------------------
# Paths, and the run to resume.


def anchored(config: Config) -> Config:
    """Return the same configuration with absolute paths, which mean the same wherever `agentrl resume` is called."""
    env, algorithm = tuple(map(_with_paths, config.env)), _with_paths(config.algorithm)
    model = config.model.model_copy(update={"name": anchored_model(config.model.name)})
    critic = config.critic.model_copy(update={"model": anchored_model(config.critic.model)})
    if teacher := other_models(config).get("teacher"):
        algorithm = algorithm.model_copy(update={"teacher": anchored_model(teacher)})
    if loss := algorithm.options.get("loss"):
        algorithm = algorithm.model_copy(update={"loss": absolute(str(loss))})
    reward = config.reward.model_copy(update={"models": tuple(keys.anchored for keys in config.reward.models)})
    out, lock = (path and path.absolute() for path in (config.out, config.env_lock))
    changed = {"env": env, "model": model, "critic": critic, "algorithm": algorithm, "reward": reward}
    changed |= {"roles": _with_models(config.roles), "out": out, "env_lock": lock}
    return config.model_copy(update=changed)


def _with_paths(section: P) -> P:
    options = {key: anchored_value(value) for key, value in section.options.items()}
    own: dict[str, Any] = {}
    if isinstance(section, EnvSection):
        own["python"] = section.python and section.python.absolute()
        own["roles"] = section.roles and _with_models(section.roles)
    return section.model_copy(update={"name": absolute(section.name), **own, **options})


def _with_models(roles: Mapping[str, RoleKeys]) -> dict[str, RoleKeys]:
    return {name: keys.anchored for name, keys in roles.items()}


def check_resumable(folder: RunFolder) -> None:
    """Raise ConfigError if this version cannot resume the run, RunError if a process drives it. Changes nothing."""
    path = folder.path
    if not folder.is_training:
        raise ConfigError(
            f"nothing was trained in {path}: start with `agentrl train --config {folder.config} --out OTHER`"
        )
    if not folder.audit.is_file():
        raise ConfigError(
            f"{path} was written by an earlier version of agentrl: resume it with that version, or start a new run "
            "with `agentrl train ... --out OTHER`"
        )
    check_free(path)


def check_unfinished(folder: RunFolder, steps: int) -> None:
    """Raise ConfigError if all `steps` are done.

    A run that trained its last step but did not finish is resumed for its last evaluation and its report.
    """
    done = max(steps_in(folder.checkpoints), default=0)
    last = summary.read(folder)
    if done > steps or (done == steps and last is not None and last.is_finished):
        raise ConfigError(f"all {done} steps are done; continue with --steps N (N > {done})")
