"""A stand-in for `openrlhf.utils.agent`, so that agents of OpenRLHF can be imported where it is not installed."""
# ruff: noqa: ARG002  (the signatures are those of OpenRLHF)

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Any

from agentrl.env.files.results import PAGE, fault, is_given, number, returned
from agentrl.env.messages import short
from agentrl.errors import ConfigError, EnvError

STEP = ("rewards", "environment_feedback", "done")
"""What a step returns at least."""


class AgentExecutorBase(ABC):
    """Plays whole episodes on tokens."""

    @abstractmethod
    async def execute(
        self, prompt: str, label: Any, sampling_params: Any, max_length: int, hf_tokenizer: Any, llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the tokens of an episode, and its reward."""


class AgentInstanceBase(ABC):
    """One episode on texts."""

    @abstractmethod
    def __init__(self, *args: Any, **keywords: Any) -> None: ...

    async def reset(self, states: dict[str, Any], **keywords: Any) -> dict[str, Any]:
        """Return a dict with the first `observation`."""
        return states

    @abstractmethod
    async def step(self, states: dict[str, Any], **keywords: Any) -> dict[str, Any]:
        """Return the rewards of an action and the feedback to it."""


class MultiTurnAgentExecutor(AgentExecutorBase):
    """Plays an instance of its class for every prompt: actions and feedback are appended until it is done."""

    def __init__(self, agent_instance_cls: type) -> None:
        if inspect.iscoroutinefunction(vars(agent_instance_cls).get("__init__")):
            name = agent_instance_cls.__name__
            raise ConfigError(f"{name}.__init__ is async, so no object can be made: write def __init__ ({PAGE})")
        self.agent_instance_cls = agent_instance_cls

    async def execute(
        self, prompt: str, label: Any, sampling_params: Any, max_length: int, hf_tokenizer: Any, llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the result of one episode."""
        instance, params = self.agent_instance_cls(), sampling_params
        name = type(instance).__name__
        found = await returned(instance.reset({"observation": prompt, "label": label}), f"{name}.reset", "observation")
        text = text_of(found, "observation", f"{name}.reset")
        tokens: list[int] = list(hf_tokenizer.encode(text, add_special_tokens=False))
        ranges: list[tuple[int, int]] = []
        result: dict[str, Any] = {}
        reward, is_done = 0.0, False
        while not is_done and (not ranges or len(tokens) < max_length):  # the engine refuses a long prompt
            params.max_tokens = max_length - len(tokens)
            output = (await llm_engine.generate(tokens, deepcopy(params))).outputs[0]
            ranges.append((len(tokens), len(tokens) + len(output.token_ids)))
            states = {"observation_text": text, "action_text": output.text, "label": label, "sampling_params": params}
            result = await returned(instance.step(states), f"{name}.step", *STEP)
            feedback, params = checked(result, params, f"{name}.step")
            reward += float(number(result["rewards"]))
            is_done = bool(number(result["done"]))
            text += output.text + feedback
            tokens += [*output.token_ids, *hf_tokenizer.encode(feedback, add_special_tokens=False)]
        return {
            "prompt": prompt,
            "label": label,
            "reward": reward if ranges else None,
            "scores": result.get("scores", reward),
            "observation_tokens": tokens,
            "action_ranges": ranges,
            "extra_logs": result.get("extra_logs", {}),
        }


def checked(result: dict[str, Any], params: Any, where: str) -> tuple[str, Any]:
    """Return the feedback of a step, and the sampling parameters of the next one, by default `params`.

    Raises EnvError for what is no text, no such parameters, not one reward or not one `done`, and for images.
    """
    if is_given(result.get("environment_images")):
        raise EnvError(f"{where} returned environment_images: the policy reads text only ({PAGE})")
    if wrong := fault(result["rewards"]):
        raise EnvError(f"{where} returned 'rewards' that {wrong} ({PAGE})")
    if isinstance(done := number(result["done"]), list | tuple):
        raise EnvError(f"{where} returned 'done' {short(done)}; return True or False ({PAGE})")
    given = result.get("sampling_params")
    if given is not None and not hasattr(given, "max_tokens"):
        raise EnvError(f"{where} returned 'sampling_params' {short(given)}; return those of `states` ({PAGE})")
    return text_of(result, "environment_feedback", where), params if given is None else given


def text_of(result: dict[str, Any], key: str, where: str) -> str:
    """Return the text under a key. Raises EnvError for anything else."""
    text = result[key]
    if not isinstance(text, str):
        raise EnvError(f"{where} returned {short(text)} as {key!r}; return a text with its chat marks ({PAGE})")
    return text


class SingleTurnAgentExecutor(AgentExecutorBase):
    """Asks the policy once, without a reward: a subclass adds it to the result."""

    def __init__(self, remote_rm_url: Any = None) -> None:
        if remote_rm_url:
            raise ConfigError(
                f"SingleTurnAgentExecutor({remote_rm_url!r}): pass a file as --env ./reward_func.py, and a server as "
                f"reward.models with url ({PAGE})"
            )

    async def execute(
        self, prompt: str, label: Any, sampling_params: Any, max_length: int, hf_tokenizer: Any, llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return the prompt with its answer."""
        tokens = list(hf_tokenizer.encode(prompt, add_special_tokens=False))
        output = (await llm_engine.generate(tokens, deepcopy(sampling_params))).outputs[0]
        return {
            "prompt": prompt,
            "label": label,
            "observation_tokens": [*tokens, *output.token_ids],
            "action_ranges": [(len(tokens), len(tokens) + len(output.token_ids))],
            "truncated": output.finish_reason == "length",
            "reward": None,
            "scores": None,
            "extra_logs": {},
        }


STAND_INS: dict[str, dict[str, Any]] = {
    "openrlhf": {},
    "openrlhf.utils": {},
    "openrlhf.utils.agent": {
        kind.__name__: kind
        for kind in (AgentExecutorBase, AgentInstanceBase, MultiTurnAgentExecutor, SingleTurnAgentExecutor)
    },
    "openrlhf.utils.logging_utils": {"init_logger": logging.getLogger},
}
