"""The assistant's side of episodes without a model: its turns, and the policies that an environment brings itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from agentrl.env.base import Env, Policy
from agentrl.env.messages import is_turn, short, tool_call_fault
from agentrl.env.tasks import Task
from agentrl.errors import AgentRLError, EnvError, catch
from agentrl.plugins.tracebacks import call_author, defined_at, describe_error
from agentrl.types import Message, text_of

SILENCE = ""
DEFAULT_REWARD = 1.0
"""What a solution earns in an environment that does not say otherwise."""
LONGEST_ECHO = 100_000
TOOL_CALL = "<tool_call>"
NOISE = "Zrgh ¿qvx? blorp — “unsinn” ~~ 无意义 \\ {[(< wub; %%s {} \u200b nul\x00 xyzzy"
CALLING = "a turn that calls tools is a message: Message(role='assistant', content='', tool_calls=[…])"


def saying(text: str) -> Policy:
    """Answer every turn with the same text."""
    return lambda _: text


def echo(messages: Sequence[Message]) -> str:
    """Repeat the last message, as far as a model could: an environment that repeats as well would double it."""
    return text_of(messages[-1])[:LONGEST_ECHO] if messages else SILENCE


def solution_of(env: Env, task: Task) -> Policy | None:
    """Return the oracle of a task, None if there is none.

    Raises EnvError, which names the oracle, for what it raises, and for anything else than a policy.
    """
    oracle = call_author(f"{_where(env)} raised", env.oracle, task, at=env.oracle, kind=EnvError)
    return None if oracle is None else _named(checked_policy(oracle, _where(env)), _where(env))


def _where(env: Env) -> str:
    return f"{type(env).__name__}.oracle{defined_at(env.oracle)}"


def solution_reward(env: Env) -> float | None:
    """Return what a solved episode earns at least; None if a `success` of the environment's own decides."""
    if env.solved_reward is None and type(env).success is Env.success:
        return DEFAULT_REWARD
    return env.solved_reward


def player_of(env: Env, task: Task) -> Policy:
    """Return what plays a task if its reward does not matter: the oracle, or noise where there is none."""
    solution = solution_of(env, task)
    return (lambda _: NOISE) if solution is None else solution


def canaries_of(env: Env, task: Task) -> dict[str, Policy]:
    """Return the environment's canaries of a task by name. Raises EnvError for anything but a dict of policies."""
    canaries: Any = env.canaries(task)
    where = f"{type(env).__name__}.canaries{defined_at(env.canaries)}"
    if not isinstance(canaries, Mapping) or not all(isinstance(name, str) for name in canaries):
        raise EnvError(f"{where} returned {short(canaries)}; return a dict from names to policies: {{'silence': []}}")
    named = {name: (policy, f"{where}: {name!r}") for name, policy in canaries.items()}
    return {name: _named(checked_policy(policy, who), who) for name, (policy, who) in named.items()}


def _named(policy: Policy, who: str) -> Policy:
    """Return a policy whose errors are EnvErrors that name it; `asked` says more of an iterator that has ended."""
    if not callable(policy):
        return policy

    @wraps(policy)
    def ask(messages: list[Message]) -> Message | str:
        chosen = catch(policy, messages)
        if chosen.error is None:
            return chosen.value  # type: ignore[no-any-return]
        if isinstance(chosen.error, AgentRLError | StopIteration):
            raise chosen.error
        raise EnvError(f"{who} raised {describe_error(chosen.error)}") from chosen.error

    return ask


def checked_policy(policy: Any, where: str = "play") -> Policy:
    """Return the policy. Raises EnvError if it is neither a list of turns nor a function."""
    if callable(policy):
        return policy  # type: ignore[no-any-return]
    if isinstance(policy, str) or not isinstance(policy, Sequence):
        raise EnvError(f"{where}: write a list of turns, or a function of the messages so far, not {short(policy)}")
    for turn in policy:
        _check_turn(turn, where)
    return policy


def turn_of(policy: Policy, turn: int, messages: Sequence[Message]) -> Message | str:
    """Return the policy's next turn; a list that has ended gives empty ones."""
    if not callable(policy):
        return policy[turn] if turn < len(policy) else SILENCE
    chosen = asked(policy, turn, messages)
    _check_turn(chosen, f"the policy{defined_at(policy)}")
    return chosen  # type: ignore[no-any-return]


def asked(policy: Callable[[list[Message]], Any], turn: int, messages: Sequence[Message]) -> Any:
    """Return what a function of the messages chooses. Raises EnvError if it calls an iterator that has ended."""
    try:
        return policy(list(messages))
    except StopIteration as end:
        raise EnvError(
            f"the policy{defined_at(policy)} raised StopIteration at turn {turn + 1}: its turns have ended, perhaps in "
            "an earlier episode if it is kept; make a new iterator for each episode"
        ) from end


def _check_turn(turn: Any, where: str) -> None:
    if isinstance(turn, str) and TOOL_CALL in turn:
        raise EnvError(f"{where}: only rehearse reads calls in text; here, {CALLING}")
    if isinstance(turn, dict) and (fault := tool_call_fault(turn)):
        raise EnvError(f"{where}: a turn has {fault}")
    if not is_turn(turn):
        raise EnvError(f"{where}: a turn is text or an assistant message, not {short(turn)}")
