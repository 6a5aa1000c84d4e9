"""Environments of verifiers 0.3: `load_environment(id, **arguments)`, a dataset, a rollout and a rubric."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, Self

import verifiers.legacy as vf
from pydantic import Field
from verifiers.legacy.clients import OpenAIChatCompletionsClient
from verifiers.legacy.envs import environment as environments
from verifiers.legacy.utils.message_utils import normalize_messages
from verifiers.legacy.utils.save_utils import is_json_serializable, make_serializable, state_to_output

from agentrl.env import Context, Episode, Model, Signal, Task, TaskSource, is_in_share, reward, shared
from agentrl.errors import ConfigError, EnvError, VerifierError
from agentrl_verifiers.env import ServiceError, VerifiersConfig, VerifiersEnv
from agentrl_verifiers.library import keys_of, module_of, wrapped_by
from agentrl_verifiers.rewards import decisive, failures, watch

# Each environment sets handlers of SIGINT and SIGTERM for the whole process, which only the main thread may do, and one
# for its exit. The process of a worker has its own, and ends the environment itself.
environments.signal = SimpleNamespace(
    SIGINT=signal.SIGINT, SIGTERM=signal.SIGTERM, default_int_handler=signal.default_int_handler, signal=lambda *_: None
)
environments.atexit = SimpleNamespace(register=lambda function: function)


class ClassicConfig(VerifiersConfig):
    """The `--env.*` keys of every environment of verifiers 0.3."""

    failed_reward: Literal["invalid", "zero"] = Field(
        "invalid", description="what a reward function that raises an error gives; verifiers itself gives zero"
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """An environment of verifiers; closing it releases what it holds."""

    env: Any

    async def aclose(self) -> None:
        """Release it."""
        await self.env._teardown()


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a dataset as tasks."""

    name: str
    dataset: Any
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Task:
        row = self.indices[index]
        return Task(f"{self.name}/{row}", dict(self.dataset[row]))


class ClassicEnv(VerifiersEnv):
    """An environment of verifiers 0.3."""

    Config = ClassicConfig
    config: ClassicConfig

    @classmethod
    def bound(cls, name: str) -> type[Self]:
        """Return the class of the environment `name`, whose plain arguments are `--env.*` keys."""
        module = module_of(name)
        load = getattr(module, "load_environment", None)
        if not callable(load):
            raise ConfigError(
                f"verifiers:{name}: {module.__name__} has no function load_environment, which verifiers 0.3 calls; "
                "a Taskset needs verifiers 0.4"
            )
        keys = {key: (hint, default) for key, hint, default in keys_of(load)}
        return cls.with_keys(name, keys, wraps=wrapped_by(module, name))

    @shared
    def loaded(self) -> Loaded:
        """Load the environment."""
        env = vf.load_environment(self.id, **{**self.arguments(ClassicConfig), **self.config.args})
        if isinstance(env, vf.EnvGroup):
            raise EnvError(f"verifiers:{self.id} is a group of environments; train with several: --env A:1,B:1")
        watch(env.rubric)
        return Loaded(env)

    def tasks(self, split: str) -> TaskSource:
        """Return the rows of a split: of its own dataset, or a share of the only one."""
        env = self.loaded.env
        train, test = env.build_dataset(), env.build_eval_dataset()
        dataset = train if split == "train" else test
        if train is not None and test is not None:
            return Rows(f"{self.id}/{split}", dataset, range(len(dataset)))
        only = train if test is None else test
        held = [is_in_share(_content(only[row]), self.config.heldout_share) for row in range(len(only))]
        indices = [row for row, is_held in enumerate(held) if is_held == (split == "test")]
        if not indices:
            raise EnvError(f"verifiers:{self.id}: none of the {len(only)} rows is for {split!r}: set env.heldout_share")
        return Rows(self.id, only, indices)

    async def play(self, task: Task, ctx: Context, model: Model) -> None:
        """Let the environment roll out."""
        env, client = self.loaded.env, OpenAIChatCompletionsClient(model.client)
        ctx.state.rollout = state = await env.rollout(task.data, client, model.name, dict(env.sampling_args))
        error = state.get("error")
        if state.get("prompt_too_long"):
            raise EnvError("the conversation is longer than the context of the model")
        if isinstance(error, vf.InfraError):
            raise ServiceError(_chain(error)) from error
        if error is not None and not isinstance(error, vf.EmptyModelResponseError):
            raise EnvError(_chain(error)) from error

    async def score(self, ctx: Context) -> Sequence[Signal]:
        """Return the reward of the rubric and its metrics; where it compares episodes, only what it needs for that."""
        state, env = getattr(ctx.state, "rollout", None), self.loaded.env
        if state is None:
            raise VerifierError(f"verifiers:{self.id}: the rollout was cut off, so there is nothing to score")
        if env.requires_group_rollouts:
            return [Signal("calls", float(len(state["trajectory"])), weight=0.0, evidence=_record(state))]
        with failures() as found:
            await env.rubric.score_rollout(state)
        return list(self._signals(state, found))

    @reward(scope="group")
    async def group_reward(self, episodes: Sequence[Episode]) -> Any:
        """Return the rewards of a rubric that compares the episodes of a task."""
        env = self.loaded.env
        if not env.requires_group_rollouts:
            return NotImplemented
        states = [_restored(episode) for episode in episodes]
        with failures() as found:
            await env.rubric.score_group(states)
        return [next(self._signals(state, found)) for state in states]

    async def teardown(self, ctx: Context) -> None:
        """Let the rubric release what it holds for the episode."""
        if state := getattr(ctx.state, "rollout", None):
            await self.loaded.env.rubric.cleanup(state)

    def _signals(self, state: Any, found: dict[str, Exception]) -> Iterator[Signal]:
        """Yield the reward, which must not rest on a failed function, and the metrics, which have no weight."""
        failed = {} if self.config.failed_reward == "zero" else {name: repr(error) for name, error in found.items()}
        needed = decisive(self.loaded.env.rubric, failed)
        if needed:
            reasons = "; ".join(f"{name} raised {failed[name]}" for name in sorted(needed))
            yield Signal.invalid("reward", f"{reasons} (if such answers are worth 0: --env.failed_reward zero)")
        else:
            yield Signal("reward", float(state["reward"]), evidence={"metrics": dict(state["metrics"])})
        for name, value in state["metrics"].items():
            is_failed = name in failed
            yield Signal.invalid(name, failed[name], weight=0.0) if is_failed else Signal(name, float(value), 0.0)


def _content(row: dict[str, Any]) -> str:
    return json.dumps({key: row[key] for key in sorted(row) if key != "example_id"}, default=str)


def _chain(error: BaseException | None) -> str:
    """Return an error and its causes, which often alone say what happened."""
    texts = []
    while error is not None:
        texts.append(repr(error))
        error = error.__cause__
    return " ← ".join(texts)


def _record(state: Any) -> dict[str, Any]:
    """Return a rollout as data."""
    output = state_to_output(state)
    plain = {key: value for key, value in dict.items(state) if is_json_serializable(value) and key not in output}
    text = json.dumps({**plain, **output, "input": state["input"]}, default=make_serializable)
    return dict(json.loads(text))


def _restored(episode: Episode) -> Any:
    """Return the rollout of an episode from its record."""
    [(calls, record)] = [(signal.value, signal.evidence) for signal in episode.signals if signal.name == "calls"]
    steps = [{"reward": None, "advantage": None} for _ in range(int(calls or 0))]
    state = vf.State({**deepcopy(record), "trajectory": steps})
    for key in ("prompt", "completion"):
        state[key] = normalize_messages(record[key] or [], field_name=key)
    return state
