"""The tasks and rewards of `functions`, played by an unmodified agent of openai-agents instead of step by step.

    pip install 'agentrl-core[agents]'
    agentrl train --env ./examples/functions_agent.py

The model reads the same prompts and functions as with `--env functions`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import agents
from agentrl_functions import FunctionsConfig, FunctionsEnv

from agentrl.env import AgentEnv, Context, Limits, Model, Task


class FunctionsAgent(AgentEnv):
    """The agent calls functions once; their answers are not sent back."""

    Config = FunctionsConfig
    config: FunctionsConfig
    limits = Limits(max_turns=1)
    tasks, oracle, canaries = FunctionsEnv.tasks, FunctionsEnv.oracle, FunctionsEnv.canaries
    right, named = FunctionsEnv.right, FunctionsEnv.named

    async def play(self, task: Task, ctx: Context, model: Model) -> None:
        """Run the agent on the messages of the task, until its first calls or its answer."""
        agent = agents.Agent(
            name="functions",
            model=agents.OpenAIChatCompletionsModel(model.name, model.client),
            tools=[function(spec) for spec in task.data.tools],
            tool_use_behavior="stop_on_first_tool",
        )
        messages: list[Any] = [*FunctionsEnv(self.config).setup(task, ctx)]
        with suppress(agents.ModelBehaviorError):  # a function that does not exist: the reward says so
            await agents.Runner.run(agent, messages, run_config=agents.RunConfig(tracing_disabled=True))


def function(spec: dict[str, Any]) -> agents.FunctionTool:
    """Return a function that does nothing, as a tool of the agent."""

    async def call(_context: object, _arguments: str) -> str:
        return "noted"

    return agents.FunctionTool(spec["name"], spec["description"], spec["parameters"], call, strict_json_schema=False)
