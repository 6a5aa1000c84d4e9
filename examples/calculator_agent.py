"""Two-digit arithmetic with a calculator, played by an unmodified agent of openai-agents instead of step by step.

    pip install 'agentrl-core[agents]'
    agentrl train --env ./examples/calculator_agent.py --env.level 2 --env.tools calculator --env.shots 1 --env.turns 3

The keys are those of `math`, and the model reads the same prompts as with `--env math` and these keys, so that the
learning curves of both can be compared (docs/learning.md).
"""

from __future__ import annotations

import json
from contextlib import suppress

import agents
from agentrl_math import MathEnv
from agentrl_tools.calculator import calculate
from agents.items import TResponseInputItem

from agentrl.env import AgentEnv, BadCallError, Context, Message, Model, Task

PURPOSE = "Compute the value of an arithmetic expression, exactly where possible (a leading ≈ marks a rounded value)."
EXPRESSION = (
    "numbers, + - * / // % ^ ! and brackets; sqrt, root(x, n), abs, floor, ceil, round(x, digits), min, max, gcd, lcm, "
    "comb, perm, exp, ln, log(x, base), sin, cos, tan, asin, acos, atan, pi, e"
)
ARGUMENTS = {
    "additionalProperties": False,
    "properties": {"expression": {"description": EXPRESSION, "type": "string"}},
    "required": ["expression"],
    "type": "object",
}


class CalculatorAgent(AgentEnv, MathEnv):
    """The agent calculates until the model answers without a call."""

    async def play(self, task: Task, ctx: Context, model: Model) -> None:
        """Run the agent on the worked examples and the question."""
        agent = agents.Agent(
            name="calculator",
            model=agents.OpenAIChatCompletionsModel(model.name, model.client),
            tools=[agents.FunctionTool("calculator", PURPOSE, ARGUMENTS, call, strict_json_schema=False)],
        )
        items = [item for message in MathEnv.setup(self, task, ctx) for item in items_of(message)]
        config = agents.RunConfig(tracing_disabled=True)
        with suppress(agents.MaxTurnsExceeded, agents.ModelBehaviorError):  # the last answer is scored
            await agents.Runner.run(agent, items, max_turns=self.config.turns, run_config=config)


async def call(_context: object, arguments: str) -> str:
    """Return what the calculator of agentrl does, or the error that the model reads."""
    try:
        return calculate(str(json.loads(arguments)["expression"]))
    except (BadCallError, LookupError, TypeError, ValueError) as error:
        return f"error: {error}"


def items_of(message: Message) -> list[TResponseInputItem]:
    """Return a message as the agent framework takes it."""
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": str(message["content"])}]
    calls: list[TResponseInputItem] = [
        {
            "type": "function_call",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": json.dumps(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return calls or [{"role": message["role"], "content": str(message["content"])}]
