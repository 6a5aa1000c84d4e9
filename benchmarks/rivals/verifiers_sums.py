"""The two-turn tool task of benchmarks/agents.py in verifiers 0.4, with a harness in this process and a tool in it.

    PYTHON benchmarks/rivals/verifiers_sums.py MODEL_URL EPISODES

For each line that it reads it runs the episodes at once, and prints the CPU milliseconds of a turn. The key of the
model is in $RIVAL_KEY. It needs no agentrl.
"""

# ruff: noqa: ARG002 (the methods that the library calls ignore arguments)
# mypy: ignore-errors
import asyncio
import json
import os
import sys

import verifiers.v1 as vf
from openai import AsyncOpenAI
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import ProgramResult

__all__ = ["Adder", "Sums"]

QUESTION, ANSWER = "What is 17 + 25? Use the tool.", "42"
NUMBER = {"type": "integer"}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
}
TURNS = 2


class Sum(vf.Task[vf.TaskData]):
    """The task, whose reward is 1 for the right answer."""

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(ANSWER in (trace.last_reply or ""))


class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    """The one task."""

    def load(self):
        yield Sum(vf.TaskData(prompt=QUESTION), self.config.task)


class AdderConfig(HarnessConfig):
    """Configuration of the agent."""


class Adder(vf.Harness[AdderConfig]):
    """The agent, over one client for all episodes."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    shared = None

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data):
        Adder.shared = Adder.shared or AsyncOpenAI(base_url=endpoint, api_key=secret)
        client = Adder.shared.with_options(base_url=endpoint, api_key=secret)
        messages = [{"role": "user", "content": data.prompt}]
        while True:
            tools = [{"type": "function", "function": ADD}]
            completion = await client.chat.completions.create(model=ctx.model, messages=messages, tools=tools)
            reply = completion.choices[0].message
            if not reply.tool_calls:
                return ProgramResult(exit_code=0, stdout="", stderr="")
            call = reply.tool_calls[0]
            total = sum(json.loads(call.function.arguments).values())
            messages += [
                reply.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": str(total)},
            ]


def spent_s() -> float:
    """Seconds of CPU of this process and of the children that ended."""
    return sum(os.times()[:4])


async def rounds(url: str, episodes: int) -> None:
    """Run the episodes for each line of stdin."""
    here = "verifiers_sums"
    config = vf.SingleAgentEnvConfig.model_validate(
        {
            "taskset": {"id": here},
            "agent": {"harness": {"id": here}, "runtime": {"type": "subprocess"}},
            "interception": {"type": "server"},
        }
    )
    env = vf.load_environment(config)
    context = vf.ModelContext("policy", vf.EvalClientConfig(base_url=url, api_key_var="RIVAL_KEY"))
    async with env.serving():
        (task,) = env.taskset
        while await asyncio.to_thread(sys.stdin.readline):
            began = spent_s()
            played = await asyncio.gather(*(env.run_episode(task, context) for _ in range(episodes)))
            spent = spent_s() - began
            for episode in played:
                assert episode.ok, episode.errors
                assert [reward.value for reward in episode.traces[0].rewards.values()] == [1.0]
            print(json.dumps({"ms": 1e3 * spent / (TURNS * episodes)}), flush=True)


if __name__ == "__main__":
    asyncio.run(rounds(sys.argv[1], int(sys.argv[2])))
