"""Runs the tool calls of a turn: what the model got wrong is told to the model, what the machine got wrong flies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from agentrl.env.arguments import BadCallError
from agentrl.env.driver.user_code import AuthorDeadlineError
from agentrl.env.tools import Tool, as_text, tool_message, unknown_tool
from agentrl.errors import Caught, DeadlineError, catch
from agentrl.types import TOOL_ERROR, Message, ToolCall

if TYPE_CHECKING:
    from agentrl.env.base import Env


MOST_CALLS = 64
"""Of one turn: a call takes as few as five tokens, and each runs before the next."""
PROOF_S = 180.0
"""What it takes, beside the call made twice, to prove whose doing a failure is: fresh services, earlier calls again."""
SPENT = "the time for the tools of this episode, {:g} s, is used up"
MOST_ERROR = 2000
"""Characters of an error that the model is told."""


async def answers(env: Env, calls: Sequence[ToolCall]) -> tuple[Message, ...]:
    """One tool message for each call of a turn, in order; calls beyond the first 64 are refused."""
    ran = [await answer(env, call) for call in calls[:MOST_CALLS]]
    too_many = f"{TOOL_ERROR}not run: a turn may make {MOST_CALLS} calls"
    return (*ran, *(tool_message(call, too_many) for call in calls[MOST_CALLS:]))


async def answer(env: Env, call: ToolCall) -> Message:
    """The tool message that answers one call. Raises only what carries `fault = "infra"`."""
    name = call["function"]["name"]
    tool = env.ctx.tools.get(name)
    if tool is None:
        return tool_message(call, f"{TOOL_ERROR}{unknown_tool(name, env.ctx.tools)}")
    if env.ctx.tool_time.is_over:
        return tool_message(call, f"{TOOL_ERROR}not run: {SPENT.format(env.ctx.tool_time.limit_s)}")
    try:
        arguments = tool.read(call["function"]["arguments"])
    except BadCallError as error:
        return tool_message(call, f"{TOOL_ERROR}{str(error)[:MOST_ERROR]}")
    with env.ctx.tool_time.charged():
        outcome = await env.code.attempt(partial(tool.run, **arguments), timeout_s=env.limits.tool_timeout_s, name=name)
        if tool.blame is not None and (failure := infrastructure(outcome, tool)):
            outcome = await blamed(env, tool, arguments, failure)
    return tool_message(call, said(outcome, tool))


async def blamed(env: Env, tool: Tool, arguments: dict[str, Any], failure: Exception) -> Caught:
    """The failure, or what the model is told of it where the tool can prove that the call caused it."""
    assert tool.blame is not None
    within_s = PROOF_S + 2 * env.limits.tool_timeout_s
    outcome = await env.code.attempt(partial(tool.blame, **arguments), timeout_s=within_s, name=tool.spec["name"])
    is_proven = outcome.error is None and outcome.value
    return Caught(error=BadCallError(outcome.value) if is_proven else failure)


def infrastructure(outcome: Caught, tool: Tool) -> Exception | None:
    """The error of a call that failed through no doing of the model's, as far as its tool can tell."""
    error = outcome.error
    if isinstance(error, AuthorDeadlineError):
        return DeadlineError(str(error)) if tool.silence == "infra" else None
    return error if getattr(error, "fault", None) == "infra" else None


def said(outcome: Caught, tool: Tool) -> str:
    """What the model reads: the tool's value, or its error in one line."""
    if failure := infrastructure(outcome, tool):
        raise failure
    if outcome.error is None:
        outcome = catch(as_text, outcome.value)
    error = outcome.error
    if error is None:
        return str(outcome.value)
    kind = "" if isinstance(error, AuthorDeadlineError | BadCallError) else f"{type(error).__name__}: "
    return f"{TOOL_ERROR}{kind}{str(error)[:MOST_ERROR]}"
