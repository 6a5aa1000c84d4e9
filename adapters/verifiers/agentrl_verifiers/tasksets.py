"""Environments of verifiers 0.4: a Taskset, the agents that play its tasks, and their traces."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self

import verifiers.v1 as vf
from pydantic import Field, ValidationError
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.interception import InterceptionServerConfig
from verifiers.v1.utils.loaders import default_harness_id, harness_class, resolve_env_config, taskset_class

from agentrl.env import Context, Model, Signal, Task, is_in_share, shared
from agentrl.errors import ConfigError, EnvError, VerifierError
from agentrl_verifiers.env import ServiceError, VerifiersConfig, VerifiersEnv
from agentrl_verifiers.harness import ChatHarnessConfig
from agentrl_verifiers.library import fits, is_plain, merged, module_of, wrapped_by
from agentrl_verifiers.seats import POLICY, SEATS, PolicyServer, Seats

BUILTIN = "verifiers.v1.tasksets"
CHAT = ChatHarnessConfig(id="agentrl_verifiers")
OURS = ("id", "task", "system_prompt")
"""Fields of every taskset's configuration that are no arguments of it."""
INFRA = {"SandboxError", "TunnelError", "InterceptionError"}


class TasksetEnvConfig(VerifiersConfig):
    """The `--env.*` keys of every taskset."""

    size: int = Field(1000, ge=2, description="tasks to take of a taskset that is endless")


@dataclass(frozen=True, slots=True)
class Loaded:
    """An environment of verifiers with all its tasks."""

    env: Any
    tasks: tuple[Any, ...]


class TasksetEnv(VerifiersEnv):
    """An environment of verifiers 0.4."""

    Config = TasksetEnvConfig
    config: TasksetEnvConfig

    @classmethod
    def bound(cls, name: str) -> type[Self]:
        """Return the class of the taskset `name`, whose plain settings are `--env.*` keys."""
        module = module_of(name, BUILTIN)
        try:
            fields = vf_config(name).model_fields
        except (AttributeError, TypeError, ValueError) as error:
            raise ConfigError(f"verifiers:{name}: {error}; verifiers 0.4 has no load_environment") from error
        keys = {
            key: (field.annotation, field)
            for key, field in fields.items()
            if key not in OURS and is_plain(field.annotation) and (field.is_required() or _fits(field))
        }
        return cls.with_keys(name, keys, wraps=wrapped_by(module, name))

    def preflight(self) -> str:
        """Check the configuration, and that the environment needs neither a container nor a program."""
        config = self.configured()
        return f"verifiers:{self.id}: {', '.join(agent_config_fields(config))} on the policy's endpoint."

    def configured(self) -> Any:
        """Return the configuration of the environment: its agents chat in this process. Raises ConfigError."""
        given = {"taskset": {"id": self.id, **self.arguments(TasksetEnvConfig)}}
        try:
            config = resolve_env_config(merged(given, self.config.args))
        except (ValidationError, ValueError) as error:
            raise ConfigError(f"verifiers:{self.id}: {error}") from error
        if taskset_class(self.id).task_type().NEEDS_CONTAINER:
            raise ConfigError(
                f"verifiers:{self.id}: its tasks need a container of verifiers, which agentrl does not run"
            )
        agents = {name: self._seated(name, spec) for name, spec in agent_config_fields(config).items()}
        return config.model_copy(update={**agents, "interception": InterceptionServerConfig()})

    def _seated(self, name: str, agent: Any) -> Any:
        if agent.model is not None and agent.client is None:
            raise ConfigError(
                f"verifiers:{self.id}: the agent {name!r} plays {agent.model}, but no endpoint is given for it: "
                f'--env.args \'{{"{name}": {{"client": {{"base_url": …, "api_key_var": …}}}}}}\''
            )
        chosen = agent.harness.id if agent.harness else default_harness_id(self.id)
        harness = agent.harness or vf.default_agent_harness(self.id)
        if chosen == "null" or (agent.harness is None and chosen == "bash"):
            harness = CHAT
        elif (kind := harness_class(chosen)).NEEDS_CONTAINER or kind.EXECUTES_CODE:
            raise ConfigError(
                f"verifiers:{self.id}: the agent {name!r} runs {chosen}, which executes what the model writes; "
                f'agentrl runs harnesses that chat: --env.args \'{{"{name}": {{"harness": {{"id": "null"}}}}}}\''
            )
        # An attempt that verifiers repeats would be trained with the reward of the next one.
        update = {"harness": harness, "runtime": vf.SubprocessConfig(), "retries": vf.RetryConfig()}
        return agent.model_copy(update=update)

    @shared
    def loaded(self) -> Loaded:
        """Load the environment and its tasks."""
        env = vf.load_environment(self.configured())
        tasks = env.taskset if env.taskset.bounded else islice(env.taskset, self.config.size)
        return Loaded(env, tuple(tasks))

    @shared
    @asynccontextmanager
    async def server(self) -> AsyncIterator[PolicyServer]:
        """Start what the environment serves, and the server between its agents and their models."""
        env = self.loaded.env
        async with env.serving():
            theirs = env._interception
            async with PolicyServer(state_service_secrets=theirs.state_service_secrets) as server:
                env._interception = server
                yield server

    def tasks(self, split: str) -> list[Task]:
        """Return the tasks of a split: a hash of its content puts a task in one of them."""
        tasks = []
        for index, task in enumerate(self.loaded.tasks):
            data = task.data.model_dump(mode="json")
            content = json.dumps({key: data[key] for key in data if key != "idx"}, sort_keys=True)
            if is_in_share(content, self.config.heldout_share) == (split == "test"):
                tasks.append(Task(f"{self.id}/{index}", data))
        if not tasks:
            total = len(self.loaded.tasks)
            raise EnvError(f"verifiers:{self.id}: none of the {total} tasks is for {split!r}: set env.heldout_share")
        return tasks

    async def play(self, task: Task, ctx: Context, model: Model) -> None:
        """Let the environment play the episode."""
        loaded = self.loaded
        ctx.state.seats = seats = Seats(model)
        SEATS.set(seats)
        context = vf.ModelContext(model.name, POLICY)
        ctx.state.episode = episode = await loaded.env.run_episode(loaded.tasks[task.data["idx"]], context)
        for trace in episode.traces:
            check(trace.errors, is_scoring=bool(trace.timing.scoring.start))
            if trace.id in seats.names and trace.calls and (refused := trace.calls[-1].error):
                raise EnvError(f"{trace.agent.name}: {refused.message}")
        check(episode.errors)

    def score(self, ctx: Context) -> Sequence[Signal]:
        """Return the rewards and metrics of every trace, for the agent that earned them."""
        episode = getattr(ctx.state, "episode", None)
        if episode is None:
            raise VerifierError(f"verifiers:{self.id}: the episode was cut off, so there is nothing to score")
        signals = [signal for trace in episode.traces for signal in of_trace(trace, ctx.state.seats)]
        if not any(signal.weight for signal in signals):
            raise VerifierError(f"verifiers:{self.id}: no trace of the policy has a reward")
        return signals


def vf_config(name: str) -> Any:
    """Return the class of a taskset's configuration."""
    from verifiers.v1.utils.loaders import taskset_config_type

    return taskset_config_type(name)


def _fits(field: Any) -> bool:
    return fits(field.annotation, field.get_default(call_default_factory=True))


def check(errors: Sequence[Any], *, is_scoring: bool = False) -> None:
    """Raise the last error that verifiers recorded, if any: of a service, of the scoring, or of the environment."""
    if not errors:
        return
    last = errors[-1]
    text = f"{last.type}: {last.message}"
    status = last.status_code or 0
    if last.type in INFRA or (last.type == "ProviderError" and (status in (408, 429) or status >= 500)):
        raise ServiceError(text)
    raise (VerifierError if is_scoring and last.type == "TaskError" else EnvError)(text)


def of_trace(trace: Any, seats: Seats) -> Iterator[Signal]:
    """Yield the rewards of a trace, which count only for the policy, and its metrics."""
    is_policy = trace.id in seats.names
    agent = seats.names.get(trace.id, "")
    prefix = "" if is_policy else f"{trace.agent.name}/"
    for name, reward in trace.rewards.items():
        weight = reward.weight if is_policy and reward is not None else float(is_policy)
        if reward is None:
            yield Signal.invalid(prefix + name, "verifiers did not compute it", weight=weight, agent=agent)
        else:
            yield Signal(prefix + name, reward.score, weight, agent=agent)
    for name, metric in trace.metrics.items():
        if metric is not None:
            yield Signal(prefix + name, metric, weight=0.0, agent=agent)
