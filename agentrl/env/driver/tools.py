"""The tools of one episode: the environment's own and those it is lent, opened with the episode and closed with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from agentrl.env.driver.user_code import AuthorDeadlineError
from agentrl.env.tools import Tool, bound_tools
from agentrl.errors import DeadlineError, EnvError

if TYPE_CHECKING:
    from agentrl.env.base import Env


class Toolbox:
    """What one episode offers the model, by name; its toolsets are opened in order and closed newest first."""

    def __init__(self, env: Env) -> None:
        self.tools: dict[str, Tool] = {}
        self._env = env
        self._open = AsyncExitStack()

    async def fill(self, offers: Callable[..., Any] | None) -> None:
        """Take the `@tool` methods of the environment, then what `offers(ctx)` returns; opens what must be opened."""
        env = self._env
        self._add(bound_tools(env), "its own methods")
        if offers is not None:
            offered = await env.code.call(offers, env.ctx, timeout_s=env.limits.setup_timeout_s)
            if not isinstance(offered, Iterable):
                raise EnvError(f"{type(env).__name__}.tools returned {offered!r}; return a list of what is offered")
            for offer in offered:
                await self._take(offer)

    async def close(self) -> None:
        """Leave every toolset that was entered, each within its deadline. Idempotent."""
        await self._open.aclose()

    async def _take(self, offer: Any) -> None:
        name = type(offer).__name__
        if isinstance(offer, AbstractAsyncContextManager):
            offer = await self._enter(offer, name)
        self._add(tools_in(offer), name)

    async def _enter(self, toolset: AbstractAsyncContextManager[Any], name: str) -> Any:
        async def enter() -> Any:
            value = await toolset.__aenter__()
            self._open.push_async_callback(self._leave, toolset, name)  # no await since: entered is registered
            return value

        return await self._timed(enter, name, self._env.limits.setup_timeout_s)

    async def _leave(self, toolset: AbstractAsyncContextManager[Any], name: str) -> None:
        async def leave() -> None:
            await toolset.__aexit__(None, None, None)

        await self._timed(leave, name, self._env.limits.teardown_timeout_s)

    async def _timed(self, function: Callable[[], Any], name: str, timeout_s: float) -> Any:
        """Opening and closing past the deadline is no fault of the environment's program: a service hangs."""
        try:
            return await self._env.code.call(function, timeout_s=timeout_s, name=f"tools: {name}.{function.__name__}")
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
    """The tools of what an environment offers: a Tool, an object with `@tool` methods, or several of these."""
    if isinstance(offer, Tool):
        yield offer
    elif isinstance(offer, Iterable):
        for item in offer:
            yield from tools_in(item)
    elif found := bound_tools(offer):
        yield from found
    else:
        raise EnvError(f"tools() offered {offer!r}, which has no @tool method; offer Tools, or objects that have some")
