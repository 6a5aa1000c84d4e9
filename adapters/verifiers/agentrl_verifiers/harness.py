"""A harness of verifiers 0.4 that chats in this process; the ones of verifiers start a Python process per episode."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

from openai import APIStatusError, omit
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harness import Harness
from verifiers.v1.harnesses.utils.compaction import bound_tool_message, is_context_overflow
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace

from agentrl_verifiers.seats import SEATS


class ChatHarnessConfig(HarnessConfig):
    """Configuration of the harness."""


class ChatHarness(Harness[ChatHarnessConfig]):
    """Chats until the model calls no tool; the tools are those of the task's MCP servers."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: Trace,  # noqa: ARG002
        runtime: Runtime,  # noqa: ARG002
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ProgramResult:
        """Chat, and return when the model has nothing to call or no room to answer."""
        client = SEATS.get().model.client.with_options(base_url=endpoint, api_key=secret, max_retries=0)
        messages = self._messages(data)
        async with AsyncExitStack() as stack:
            servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
            tools, dispatch, connections = await connect_mcp({"mcpServers": servers}, stack)
            while True:
                try:
                    completion = await client.chat.completions.create(
                        model=ctx.model, messages=messages, tools=tools or omit
                    )
                except APIStatusError as error:
                    if is_context_overflow(error):
                        break
                    raise
                reply: Any = completion.choices[0].message
                messages.append(reply.model_dump(exclude_none=True))
                calls = [call for call in reply.tool_calls or () if call.type == "function"]
                if not calls:
                    break
                for call in calls:
                    content = await _result(call.function, dispatch, connections)
                    answer = {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": content}
                    messages.append(bound_tool_message(answer))
        return ProgramResult(exit_code=0, stdout="", stderr="")

    def _messages(self, data: TaskData) -> list[Any]:
        system, prompt = self.resolve_prompt(data)
        first = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            return [*first, {"role": "user", "content": prompt}]
        return [*first, *map(message_to_wire, prompt or [])]


async def _result(function: Any, dispatch: dict[str, Any], connections: dict[str, Any]) -> Any:
    """Call a tool. The result of an invalid call is an error message for the model."""
    try:
        arguments = json.loads(function.arguments or "{}")
    except ValueError as error:
        return f"error: the arguments are no JSON: {error}"
    if not isinstance(arguments, dict):
        return "error: the arguments are no JSON object"
    if function.name not in dispatch:
        return f"error: unknown tool {function.name!r}; known: {', '.join(dispatch)}"
    return await call_mcp(connections, dispatch, function.name, arguments)
