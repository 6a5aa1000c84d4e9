"""Runs the tool calls of a turn: what the model got wrong is told to the model, what the machine got wrong flies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agentrl.env.authored import AuthorDeadlineError, Outcome, caught
from agentrl.env.tools import BadCallError, as_text, tool_message, tools_of, unknown_tool
from agentrl.types import Message, ToolCall

if TYPE_CHECKING:
    from agentrl.env.base import Env


async def answer(env: Env, call: ToolCall) -> Message:
    """The tool message that answers one call. Raises only what carries `fault = "infra"`."""
    name = call["function"]["name"]
    tools = tools_of(type(env))
    if name not in tools:
        return tool_message(call, f"error: {unknown_tool(name, tools)}")
    try:
        arguments = tools[name].read(call["function"]["arguments"])
    except BadCallError as error:
        return tool_message(call, f"error: {error}")
    method = partial(getattr(env, name), **arguments)
    outcome = await env.code.attempt(method, timeout_s=env.limits.tool_timeout_s, name=name)
    return tool_message(call, said(outcome, name))


def said(outcome: Outcome, name: str) -> str:
    """What the model reads: the tool's value, or its error in one line."""
    if outcome.error is None:
        outcome = caught(as_text, (outcome.value,))
    if outcome.error is None:
        return str(outcome.value)
    if isinstance(outcome.error, AuthorDeadlineError):
        return f"error: {outcome.error}"
    if getattr(outcome.error, "fault", None) == "infra":
        outcome.unwrap(name)
    return f"error: {type(outcome.error).__name__}: {outcome.error}"
