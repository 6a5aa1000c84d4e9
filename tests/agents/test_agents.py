"""Unmodified agents of common frameworks: each calls a tool, answers, and is trained on one sequence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentrl.env import AgentEnv, Context, Model, Task, Tasks, reward
from agentrl.types import StopReason
from tests.unit.rollout.agents import play
from tests.unit.rollout.cases import check_law_1

QUESTION, ANSWER = "What is 17 + 25?", "It is 42."
SCRIPT = ('Let me add.\n<tool_call>{"name": "add", "arguments": {"a": 17, "b": 25}}</tool_call>', ANSWER)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
FUNCTION: Any = {"name": "add", "description": "Add two numbers.", "parameters": SCHEMA}


class Sums(AgentEnv):
    """Is worth 1 if the agent returns the answer of the policy."""

    def tasks(self, split: str) -> Tasks:
        return [Task(f"{split}-{n}", n) for n in range(10)]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.result == ANSWER)


def added(arguments: Any) -> str:
    given = json.loads(arguments) if isinstance(arguments, str) else arguments
    return str(given["a"] + given["b"])


class OpenAIChat(Sums):
    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            message = await self.reply(model, messages=messages, tools=[{"type": "function", "function": FUNCTION}])
            if not message.tool_calls:
                return message.content
            messages.append(message)
            for call in message.tool_calls:
                content = added(call.function.arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    async def reply(self, model: Model, **body: Any) -> Any:
        return (await model.client.chat.completions.create(model=model.name, **body)).choices[0].message


class OpenAIChatStream(OpenAIChat):
    async def reply(self, model: Model, **body: Any) -> Any:
        async with model.client.chat.completions.stream(model=model.name, **body) as stream:
            completion = await stream.get_final_completion()
        message = completion.choices[0].message
        return message.model_copy(update={"parsed": None})


class OpenAIResponses(Sums):
    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        items: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            response = await self.respond_to(model, input=items, tools=[{"type": "function", **FUNCTION}])
            items += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            for call in calls:
                output = added(call.arguments)
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})

    async def respond_to(self, model: Model, **body: Any) -> Any:
        return await model.client.responses.create(model=model.name, **body)


class OpenAIResponsesStream(OpenAIResponses):
    async def respond_to(self, model: Model, **body: Any) -> Any:
        async with model.client.responses.stream(model=model.name, **body) as stream:
            texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            response = await stream.get_final_response()
        assert "".join(texts) == response.output_text
        return response


class AnthropicMessages(Sums):
    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        direct = DefaultAsyncHttpxClient(trust_env=False)
        url = model.base_url.removesuffix("/v1")
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        tool = {"name": "add", "description": "Add two numbers.", "input_schema": SCHEMA}
        async with AsyncAnthropic(base_url=url, api_key=model.api_key, http_client=direct) as client:
            while True:
                message = await self.reply(client, model=model.name, max_tokens=100, messages=messages, tools=[tool])
                calls = [block for block in message.content if block.type == "tool_use"]
                if message.stop_reason != "tool_use":
                    return message.content[0].text
                results = [
                    {"type": "tool_result", "tool_use_id": call.id, "content": added(call.input)} for call in calls
                ]
                messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]

    async def reply(self, client: Any, **body: Any) -> Any:
        return await client.messages.create(**body)


class AnthropicStream(AnthropicMessages):
    async def reply(self, client: Any, **body: Any) -> Any:
        async with client.messages.stream(**body) as stream:
            return await stream.get_final_message()


class OpenAIAgents(Sums):
    """An agent of `openai-agents`, whose default API is responses."""

    api: str = "responses"
    streams = False

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        import agents

        @agents.function_tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        kinds = {"responses": agents.OpenAIResponsesModel, "chat": agents.OpenAIChatCompletionsModel}
        agent = agents.Agent(name="adder", tools=[add], model=kinds[self.api](model.name, model.client))
        config = agents.RunConfig(tracing_disabled=True)
        if not self.streams:
            return (await agents.Runner.run(agent, QUESTION, run_config=config)).final_output
        result = agents.Runner.run_streamed(agent, QUESTION, run_config=config)
        async for _ in result.stream_events():
            pass
        return result.final_output


class OpenAIAgentsStream(OpenAIAgents):
    streams = True


class OpenAIAgentsChat(OpenAIAgents):
    api = "chat"


class OpenAIAgentsChatStream(OpenAIAgentsChat):
    streams = True


class OpenAIAgentsById(OpenAIAgents):
    """The same, where every request continues a response by its id."""

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        import agents

        @agents.function_tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        chat = agents.OpenAIResponsesModel(model.name, model.client)
        agent = agents.Agent(name="adder", tools=[add], model=chat)
        config = agents.RunConfig(tracing_disabled=True)
        result = await agents.Runner.run(agent, QUESTION, run_config=config, auto_previous_response_id=True)
        return result.final_output


class LangGraph(Sums):
    """A graph of an agent and its tools, with `langchain-openai`."""

    uses_responses = False
    streams = False

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.prebuilt import ToolNode, tools_condition

        @tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        chat = ChatOpenAI(
            model=model.name,
            api_key=model.api_key,  # type: ignore[arg-type]
            root_async_client=model.client,
            async_client=model.client.chat.completions,
            use_responses_api=self.uses_responses,
            streaming=self.streams,
        ).bind_tools([add])

        async def call(state: MessagesState) -> dict[str, Any]:
            return {"messages": [await chat.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("agent", call)
        graph.add_node("tools", ToolNode([add]))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition)
        graph.add_edge("tools", "agent")
        state = await graph.compile().ainvoke({"messages": [("user", QUESTION)]})  # type: ignore[call-overload]
        return state["messages"][-1].text


class LangGraphStream(LangGraph):
    streams = True


class LangGraphResponses(LangGraph):
    uses_responses = True


class LangGraphResponsesStream(LangGraphResponses):
    streams = True


class Inspect(Sums):
    """The generate loop of `inspect_ai` over chat completions."""

    provider = "openai-api/policy/policy"

    async def play(self, task: Task, ctx: Context, model: Model) -> object:
        from inspect_ai.model import get_model
        from inspect_ai.tool import Tool, tool

        @tool
        def add() -> Tool:
            async def execute(a: int, b: int) -> int:
                """Add two numbers.

                Args:
                    a: The first.
                    b: The second.
                """
                return a + b

            return execute

        async with get_model(self.provider, base_url=model.base_url, api_key=model.api_key, memoize=False) as chat:
            _, output = await chat.generate_loop(QUESTION, tools=[add()])
        return output.completion


class InspectResponses(Inspect):
    """The same with its provider `openai`, which first asks for a greeting."""

    provider = "openai/policy"


class Smol(Sums):
    """An agent of `smolagents`, which blocks, and writes its history anew in every turn."""

    def play(self, task: Task, ctx: Context, model: Model) -> object:
        import smolagents

        class Add(smolagents.Tool):  # type: ignore[misc, name-defined]
            name, description, output_type = "add", "Add two numbers.", "integer"
            inputs = {name: {"type": "integer", "description": "A number."} for name in "ab"}  # noqa: RUF012

            def forward(self, a: int, b: int) -> int:
                return a + b

        chat = smolagents.OpenAIModel(model.name, api_base=model.base_url, api_key=model.api_key)
        return smolagents.ToolCallingAgent([Add()], chat, verbosity_level=0).run(QUESTION)


class SmolCode(Smol):
    """One that writes Python."""

    def play(self, task: Task, ctx: Context, model: Model) -> object:
        import smolagents

        chat = smolagents.OpenAIModel(model.name, api_base=model.base_url, api_key=model.api_key)
        return smolagents.CodeAgent([], chat, verbosity_level=0).run(QUESTION)


AGENTS: dict[str, tuple[type[Sums], ...]] = {
    "openai": (OpenAIChat, OpenAIChatStream, OpenAIResponses, OpenAIResponsesStream),
    "anthropic": (AnthropicMessages, AnthropicStream),
    "agents": (OpenAIAgents, OpenAIAgentsStream, OpenAIAgentsChat, OpenAIAgentsChatStream, OpenAIAgentsById),
    "langgraph": (LangGraph, LangGraphStream, LangGraphResponses, LangGraphResponsesStream),
    "inspect_ai": (Inspect,),
}


of_inspect = pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated:DeprecationWarning")
"""inspect_ai calls tenacity as it was."""
CASES = [pytest.param(module, kind, id=kind.__name__) for module, kinds in AGENTS.items() for kind in kinds]


@of_inspect
@pytest.mark.parametrize(("module", "kind"), CASES)
async def test_an_unmodified_agent_is_trained_on_one_sequence(module: str, kind: type[Sums]) -> None:
    pytest.importorskip(module)
    trajectory, heard = await play(None, SCRIPT, base=kind, episode_timeout_s=300.0)  # type: ignore[arg-type]
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert (trajectory.turns, trajectory.reward, len(trajectory.sequences)) == (2, 1.0, 1)
    assert [message["role"] for message in trajectory.messages] == ["user", "assistant", "tool", "assistant"]
    check_law_1(trajectory, heard.calls)


@of_inspect
async def test_a_call_beside_the_conversation_is_a_sequence_of_its_own() -> None:
    pytest.importorskip("inspect_ai")
    trajectory, heard = await play(None, ("hello, world", *SCRIPT), base=InspectResponses, episode_timeout_s=300.0)  # type: ignore[arg-type]
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert (trajectory.turns, trajectory.reward, len(trajectory.sequences)) == (3, 1.0, 2)
    check_law_1(trajectory, heard.calls)


FINAL = '<tool_call>{"name": "final_answer", "arguments": {"answer": "It is 42."}}</tool_call>'
CODE = ("<code>\nprint(17 + 25)\n</code>", '<code>\nfinal_answer("It is 42.")\n</code>')


@pytest.mark.parametrize(("kind", "script"), [(Smol, (SCRIPT[0], FINAL)), (SmolCode, CODE)])
async def test_an_agent_that_rewrites_its_history_has_a_sequence_for_every_turn(
    kind: type[Sums], script: tuple[str, ...]
) -> None:
    pytest.importorskip("smolagents")
    trajectory, heard = await play(None, script, base=kind, context=20_000, episode_timeout_s=300.0)  # type: ignore[arg-type]
    assert (trajectory.stop_reason, trajectory.error) == (StopReason.AGENT_DONE, "")
    assert (trajectory.turns, trajectory.reward, len(trajectory.sequences)) == (2, 1.0, 2)
    assert trajectory.action_tokens == sum(len(completion.ids) for _, _, completion in heard.calls)
