"""Runs the tool calls of a turn: what the model got wrong is told to the model, what the machine got wrong flies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agentrl.env.authored import AuthorDeadlineError, Outcome, caught
from agentrl.env.tools import BadCallError, Tool, as_text, tool_message, unknown_tool
from agentrl.errors import DeadlineError
from agentrl.types import TOOL_ERROR, Message, ToolCall

if TYPE_CHECKING:
    from agentrl.env.base import Env


async def answer(env: Env, call: ToolCall) -> Message:
    """The tool message that answers one call. Raises only what carries `fault = "infra"`."""
    name = call["function"]["name"]
    tool = env.ctx.tools.get(name)
    if tool is None:
        return tool_message(call, f"{TOOL_ERROR}{unknown_tool(name, env.ctx.tools)}")
    try:
        arguments = tool.read(call["function"]["arguments"])
    except BadCallError as error:
        return tool_message(call, f"{TOOL_ERROR}{error}")
    outcome = await env.code.attempt(partial(tool.run, **arguments), timeout_s=env.limits.tool_timeout_s, name=name)
    return tool_message(call, said(outcome, tool))


def said(outcome: Outcome, tool: Tool) -> str:
    """What the model reads: the tool's value, or its error in one line."""
    if outcome.error is None:
        outcome = caught(as_text, (outcome.value,))
    error = outcome.error
    if error is None:
        return str(outcome.value)
    if isinstance(error, AuthorDeadlineError) and tool.silence == "infra":
        raise DeadlineError(str(error))
    if getattr(error, "fault", None) == "infra":
        raise error
    kind = "" if isinstance(error, AuthorDeadlineError | BadCallError) else f"{type(error).__name__}: "
    return f"{TOOL_ERROR}{kind}{error}"
