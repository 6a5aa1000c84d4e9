"""The tools of one episode: opened with it, called by its turns, closed with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any

from agentrl.env.arguments import BadCallError
from agentrl.env.base import Env
from agentrl.env.driver.user_code import AuthorDeadlineError, UserCode
from agentrl.env.messages import short
from agentrl.env.tools import Tool, as_text, bound_tools, tool_message, unknown_tool
from agentrl.errors import Caught, ConfigError, DeadlineError, EnvError, catch
from agentrl.types import TOOL_ERROR, Message, ToolCall

MAX_CALLS = 64
"""In one turn: a call may take as few as five tokens, and each runs before the next."""
PROOF_S = 180.0
"""Time, besides making the call twice, to prove what caused a failure: fresh services, earlier calls repeated."""
SPENT = "the time for the tools of this episode, {:g} s, is used up"
NO_TOOLS = (str, bytes, Mapping)
"""Types that contain no tools, although they are iterable."""
OFFERS = "objects with @tool methods, or agentrl.env.Tool objects"
MAX_ERROR_CHARS = 2000
"""Length at which an error message for the model is cut."""


class Toolbox:
    """The tools that one episode offers the model; toolsets are opened in order and closed newest first."""

    def __init__(self, env: Env, code: UserCode) -> None:
        self.tools: dict[str, Tool] = {}
        self._env, self._code = env, code
        self._open = AsyncExitStack()

    async def fill(self) -> None:
        """Take the `@tool` methods of the environment and what its `tools(ctx)` returns; open what must be opened."""
        env = self._env
        self._add(bound_tools(env), "its own methods")
        if type(env).tools is Env.tools:
            return
        offered = await self._code.call(env.tools, env.ctx, timeout_s=env.limits.setup_timeout_s)
        if not isinstance(offered, Iterable) or isinstance(offered, NO_TOOLS):
            raise EnvError(f"{type(env).__name__}.tools returned {short(offered)}; return a list of {OFFERS}")
        for offer in offered:
            await self._take(offer)

    async def answers(self, calls: Sequence[ToolCall]) -> tuple[Message, ...]:
        """Run the calls of a turn in order, each to one tool message; calls beyond the first 64 are rejected.

        The model reads what it got wrong. Raises errors with `fault = "infra"`, and ConfigError.
        """
        ran = [await self._answer(call) for call in calls[:MAX_CALLS]]
        too_many = f"{TOOL_ERROR}not run: a turn may make {MAX_CALLS} calls"
        return (*ran, *(tool_message(call, too_many) for call in calls[MAX_CALLS:]))

    async def close(self) -> None:
        """Leave every toolset that was entered, each within its deadline. Idempotent."""
        await self._open.aclose()

    async def _answer(self, call: ToolCall) -> Message:
        ctx, name = self._env.ctx, call["function"]["name"]
        tool = ctx.tools.get(name)
        if tool is None:
            return tool_message(call, f"{TOOL_ERROR}{unknown_tool(name, ctx.tools)}")
        if ctx.tool_time.is_over:
            return tool_message(call, f"{TOOL_ERROR}not run: {SPENT.format(ctx.tool_time.limit_s)}")
        try:
            arguments = tool.read(call["function"]["arguments"])
        except BadCallError as error:
            return tool_message(call, f"{TOOL_ERROR}{str(error)[:MAX_ERROR_CHARS]}")
        with ctx.tool_time.charged():
            outcome = await self._run(tool, arguments)
        return tool_message(call, answer_text(outcome, tool))

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> Caught:
        name, limit_s = tool.spec["name"], self._env.limits.tool_timeout_s
        outcome = await self._code.attempt(partial(tool.run, **arguments), timeout_s=limit_s, name=name)
        failure = infrastructure(outcome, tool)
        if failure is None or tool.blame is None:
            return outcome
        blame = partial(tool.blame, **arguments)
        proof = await self._code.attempt(blame, timeout_s=PROOF_S + 2 * limit_s, name=name)
        is_proven = proof.error is None and proof.value
        return Caught(error=BadCallError(proof.value) if is_proven else failure)

    async def _take(self, offer: Any) -> None:
        name = type(offer).__name__
        if isinstance(offer, AbstractAsyncContextManager):
            offer = await self._enter(offer, name)
        self._add(tools_in(offer), name)

    async def _enter(self, toolset: AbstractAsyncContextManager[Any], name: str) -> Any:
        async def enter() -> Any:
            value = await toolset.__aenter__()
            self._open.push_async_callback(self._leave, toolset, name)  # no await in between: once entered, registered
            return value

        return await self._timed(enter, name, self._env.limits.setup_timeout_s)

    async def _leave(self, toolset: AbstractAsyncContextManager[Any], name: str) -> None:
        async def leave() -> None:
            await toolset.__aexit__(None, None, None)

        await self._timed(leave, name, self._env.limits.teardown_timeout_s)

    async def _timed(self, function: Callable[[], Any], name: str, timeout_s: float) -> Any:
        """Open or close a toolset. A timeout is an infrastructure failure, because a service hangs."""
        try:
            return await self._code.call(function, timeout_s=timeout_s, name=f"tools: {name}.{function.__name__}")
        except AuthorDeadlineError as error:
            raise DeadlineError(str(error)) from error

    def _add(self, tools: Iterable[Tool], source: str) -> None:
        for tool in tools:
            name = tool.spec["name"]
            if name in self.tools:
                raise EnvError(
                    f"{type(self._env).__name__}: {source} offers a second tool named {name!r}; leave one out"
                )
            self.tools[name] = tool


def tools_in(offer: Any) -> Iterator[Tool]:
    """Yield the tools of an offer: a Tool, an object with `@tool` methods, or several of these."""
    if isinstance(offer, Tool):
        yield offer
    elif isinstance(offer, Iterable) and not isinstance(offer, NO_TOOLS):
        for item in offer:
            yield from tools_in(item)
    elif found := bound_tools(offer):
        yield from found
    else:
        raise EnvError(f"tools() offered {short(offer)}, which has no @tool method; offer {OFFERS}")


def infrastructure(outcome: Caught, tool: Tool) -> Exception | None:
    """Return the error of a call that failed for a reason other than the model's input, as far as the tool can tell."""
    error = outcome.error
    if isinstance(error, AuthorDeadlineError):
        return DeadlineError(str(error)) if tool.silence == "infra" else None
    return error if getattr(error, "fault", None) == "infra" or isinstance(error, ConfigError) else None


def answer_text(outcome: Caught, tool: Tool) -> str:
    """Return what the model reads: the tool's value, or its error in one line. Raises infrastructure failures."""
    if failure := infrastructure(outcome, tool):
        raise failure
    if outcome.error is None:
        outcome = catch(as_text, outcome.value)
    error = outcome.error
    if error is None:
        return str(outcome.value)
    kind = "" if isinstance(error, AuthorDeadlineError | BadCallError) else f"{type(error).__name__}: "
    return f"{TOOL_ERROR}{kind}{str(error)[:MAX_ERROR_CHARS]}"
