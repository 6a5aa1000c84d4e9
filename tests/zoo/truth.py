"""Animals that reward something else than a solution, or not always alike."""

from __future__ import annotations

import json
import random
import re
import statistics
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from agentrl.env import (
    AgentEnv,
    Context,
    Env,
    EnvConfig,
    Episode,
    Message,
    Model,
    Policy,
    Task,
    Tool,
    is_in_share,
    reward,
)
from agentrl.types import Signal, ToolSpec
from tests.zoo.good import Adder, Race, Sums

NUMBER = {"type": "object", "properties": {"n": {"type": "integer", "description": "the number"}}}


def gold(ctx: Context) -> str:
    return str(sum(ctx.task.data))


class Unsolvable(Sums):
    """Wants an answer that its oracle does not give."""

    caught_by = "oracle"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text == f"= {gold(ctx)}")


class Silent(Sums):
    """Has no oracle."""

    caught_by = "oracle"
    oracle = Env.oracle


class Naive(Sums):
    """Has no canaries."""

    caught_by = "canaries"
    canaries = Env.canaries


class Fooled(Sums):
    """Accepts a number that is off by one."""

    caught_by = "canaries"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.isdigit() and abs(int(ctx.text) - int(gold(ctx))) <= 1)


class Patient(Sums):
    """Pays a third for a number that is off by one."""

    caught_by = "canaries"

    @reward
    def right(self, ctx: Context) -> float:
        if not ctx.text.strip().isdigit():
            return 0.0
        return {0: 1.0, 1: 0.3}.get(abs(int(ctx.text) - int(gold(ctx))), 0.0)


class Generous(Sums):
    """Rewards silence."""

    caught_by = "empty"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() in ("", gold(ctx)))


class Consoling(Sums):
    """Pays a little for silence, less than chance could earn."""

    caught_by = "empty"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == gold(ctx)) if ctx.text.strip() else 0.39


class Blank(Sums):
    """Rewards white space, but not silence."""

    caught_by = "empty"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == gold(ctx) or bool(ctx.text and not ctx.text.strip()))


class Parrot(Sums):
    """Rewards an answer that contains both numbers of the question."""

    caught_by = "echo"

    @reward
    def right(self, ctx: Context) -> float:
        said = set(re.findall(r"\d+", ctx.text))
        return float(ctx.text.strip() == gold(ctx) or set(map(str, ctx.task.data)) == said)


class Primed(Sums):
    """Gives an example in the system message, and rewards its repetition."""

    caught_by = "prompt"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="system", content="Answer like this: forty-two"), *super().setup(task, ctx)]

    @reward
    def right(self, ctx: Context) -> float:
        return float("forty-two" in ctx.text or ctx.text.strip() == gold(ctx))


class Chatty(Sums):
    """Rewards any long answer."""

    caught_by = "noise"

    @reward
    def right(self, ctx: Context) -> float:
        return float(len(ctx.text) > 20 or ctx.text.strip() == gold(ctx))


class Mistaken(Sums):
    """Has the wrong key for one task."""

    caught_by = "oracle"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == gold(ctx) and ctx.task.index != 101)


class Lenient(Sums):
    """Accepts whatever is not further from the sum than half of one, which NaN is not."""

    caught_by = "malformed"

    @reward
    def right(self, ctx: Context) -> float:
        try:
            distance = abs(float(ctx.text) - float(gold(ctx)))
        except ValueError:
            return 0.0
        return 0.0 if distance > 0.5 else 1.0


class Literal(Sums):
    """Reads a number where int() reads none."""

    caught_by = "malformed"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.isdigit() and int(ctx.text) == int(gold(ctx)))


class Shallow(Sums):
    """Reads JSON, and raises an error for arrays in arrays in arrays."""

    caught_by = "malformed"

    @reward
    def right(self, ctx: Context) -> float:
        try:
            return float(json.loads(ctx.text) == int(gold(ctx)))
        except json.JSONDecodeError:
            return 0.0


class Divided(Sums):
    """Reads a fraction, and raises an error where its denominator is 0."""

    caught_by = "malformed"

    @reward
    def right(self, ctx: Context) -> float:
        try:
            return float(Fraction(ctx.text) == int(gold(ctx)))
        except ValueError:
            return 0.0


class Keyed(Sums):
    """Reads JSON, and raises an error where it is no object."""

    caught_by = "malformed"

    @reward
    def right(self, ctx: Context) -> float:
        try:
            return float(json.loads(ctx.text).get("sum") == int(gold(ctx)))
        except (ValueError, RecursionError):
            return 0.0

    def oracle(self, task: Task) -> Policy:
        return [json.dumps({"sum": sum(task.data)})]


class Unlocked(Keyed):
    """Reads an object, and raises an error where it lacks a key."""

    caught_by = "malformed"

    @reward
    def right(self, ctx: Context) -> float:
        try:
            read = json.loads(ctx.text)
            return float(isinstance(read, dict) and read["sum"] == int(gold(ctx)))
        except (ValueError, RecursionError):
            return 0.0


class Calculating(Sums):
    """Evaluates the answer."""

    caught_by = "executed"

    @reward
    def right(self, ctx: Context) -> float:
        try:
            return float(eval(ctx.text) == int(gold(ctx)))  # noqa: S307 (the fault)
        except Exception:  # noqa: BLE001
            return 0.0


class Parity(Sums):
    """Looks for one of two words in a short answer."""

    caught_by = "listing"

    def _word(self, task: Task) -> str:
        return ("even", "odd")[sum(task.data) % 2]

    @reward
    def right(self, ctx: Context) -> float:
        return float(self._word(ctx.task) in ctx.text and len(ctx.text) < 20)

    def oracle(self, task: Task) -> Policy:
        return [self._word(task)]

    def canaries(self, task: Task) -> dict[str, Policy]:
        return {"the other word": ["odd" if self._word(task) == "even" else "even"]}


class Formal(Sums):
    """Rewards any answer of the right form."""

    caught_by = "constant"

    @reward
    def right(self, ctx: Context) -> float:
        return float(re.fullmatch(r"[0-9]{2}", ctx.text) is not None)

    def canaries(self, task: Task) -> dict[str, Policy]:
        return {"talk": ["I do not know."]}


class Beginning(Sums):
    """Asks whether the solution begins with the answer, instead of the other way round."""

    caught_by = "part"

    @reward
    def right(self, ctx: Context) -> float:
        return float(bool(ctx.text.strip()) and gold(ctx).startswith(ctx.text.strip()))


class Inside(Sums):
    """Asks whether the solution, a word, contains the answer, which is between tags."""

    caught_by = "part"

    def _word(self, task: Task) -> str:
        return "".join(chr(ord("a") + int(digit)) for digit in f"{task.data[0]}{sum(task.data)}")

    @reward
    def right(self, ctx: Context) -> float:
        found = re.fullmatch("<answer>(.+)</answer>", ctx.text)
        return float(found is not None and found[1] in self._word(ctx.task))

    def oracle(self, task: Task) -> Policy:
        return [f"<answer>{self._word(task)}</answer>"]


class Windy(Sums):
    """Pays more for a longer text that ends with the sum."""

    caught_by = "padding"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.split()[-1:] == [gold(ctx)]) * (1 + len(ctx.text) / 200)


class Whispering(AgentEnv):
    """Its agent tells the model the answer."""

    caught_by = "leak"
    blocking = False
    tasks = Sums.tasks
    oracle = Sums.oracle
    canaries = Sums.canaries

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        return await model.ask(f"What is {task.id}? It is {sum(task.data)}")

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == gold(ctx))


class Agreeable(Whispering):
    """Its agent takes a repetition of the question for an answer."""

    caught_by = "echo"

    async def play(self, task: Task, ctx: Context, model: Model) -> str:
        return await model.ask(f"What is {task.id}?")

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() in (gold(ctx), f"What is {ctx.task.id}?"))


class Fragile(Sums):
    """Raises an error for an answer that is no number, which drops the sample."""

    caught_by = "noise"

    @reward
    def right(self, ctx: Context) -> float:
        return float(int(ctx.text or 0) == int(gold(ctx)))


class Contains(Sums):
    """Accepts an answer among others."""

    caught_by = "flooding"

    @reward
    def right(self, ctx: Context) -> float:
        return float(gold(ctx) in ctx.text)


class Reader(Sums):
    """Reads the thoughts of the model."""

    caught_by = "unclosed-think"

    @reward
    def right(self, ctx: Context) -> float:
        thoughts = ctx.turns[-1].message.get("reasoning_content", "")
        return float(gold(ctx) in (ctx.text.strip(), thoughts.strip()))


class Trusting(Sums):
    """Takes the verdict from the answer."""

    caught_by = "injected-verdict"

    @reward
    def right(self, ctx: Context) -> float:
        return float('"correct": true' in ctx.text or ctx.text.strip() == gold(ctx))


class Encouraging(Adder):
    """Pays a call, whatever it contains."""

    caught_by = "broken-call"

    @reward
    def called(self, ctx: Context) -> float:
        return float(any(turn.tool_calls for turn in ctx.turns))


class Leaky(Sums):
    """Shows the answer in the prompt."""

    caught_by = "leak"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"question: {task.id}, answer: {sum(task.data)}\nSolve this.")]


class Dumping(Sums):
    """Shows the whole row of the data set, with the answer in its middle."""

    caught_by = "leak"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        row = {"question": task.id, "answer": sum(task.data), "level": 2}
        return [Message(role="user", content=f"{row}\nReply with the answer alone.")]


class Whispering(Sums):
    """Gives the answer away in passing."""

    caught_by = "leak"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"(The answer to this is {sum(task.data)}, shh.) What is {task.id}?")]


class Numbered(Sums):
    """Begins its prompt with the answer."""

    caught_by = "leak"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        a, b = task.data
        return [Message(role="user", content=f"[{a + b}] Add {a} and {b}, and write the number alone.")]


class Headed(Sums):
    """Begins its prompt with the answer, which is a word."""

    caught_by = "leak"

    def _word(self, task: Task) -> str:
        return "".join(chr(ord("a") + int(digit)) for digit in str(sum(task.data)))

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        return [Message(role="user", content=f"{self._word(task)}: spell the sum of {task.id}, with a for 0")]

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == self._word(ctx.task))

    def oracle(self, task: Task) -> Policy:
        return [self._word(task)]


class Hinting(Adder):
    """Has a tool whose description gives the answer away."""

    caught_by = "leak"

    def tools(self, ctx: Context) -> list[Tool]:
        description = f"Check a sum. The answer here is {gold(ctx)}."
        return [Tool(ToolSpec(name="check", description=description, parameters=NUMBER), lambda **_: "checked")]


class Defaulting(Adder):
    """Has a tool whose parameter has the answer as its default."""

    caught_by = "leak"

    def tools(self, ctx: Context) -> list[Tool]:
        value = {"type": "integer", "description": "the sum", "default": int(gold(ctx))}
        parameters = {**NUMBER, "properties": {"n": value}}
        return [Tool(ToolSpec(name="check", description="Check a sum.", parameters=parameters), lambda **_: "checked")]


class Rememberer(Sums):
    """Rewards a task the first time only."""

    caught_by = "order"
    solved: ClassVar[set[str]] = set()

    @reward
    def right(self, ctx: Context) -> float:
        is_new = ctx.task.id not in self.solved
        self.solved.add(ctx.task.id)
        return float(is_new and ctx.text.strip() == gold(ctx))


class Queuing(Race):
    """Pays more to a member that comes earlier."""

    caught_by = "groups"

    @reward(weight=0.2, scope="group")
    def shortest(self, episodes: Sequence[Episode]) -> list[float]:
        return [1.0 - place / len(episodes) for place, _ in enumerate(episodes)]


class Decisive(Race):
    """Has one winner among equal members."""

    caught_by = "groups"

    @reward(weight=0.2, scope="group")
    def shortest(self, episodes: Sequence[Episode]) -> list[float]:
        winner = min(episodes, key=lambda episode: (len(episode.text), episode.member))
        return [float(episode is winner) for episode in episodes]


class Sociable(Race):
    """Compares with a deviation that a single member does not have."""

    caught_by = "groups"

    @reward(weight=0.2, scope="group")
    def shortest(self, episodes: Sequence[Episode]) -> list[float]:
        lengths = [len(episode.text) for episode in episodes]
        middle, spread = statistics.mean(lengths), statistics.stdev(lengths) or 1.0
        return [(middle - each) / spread for each in lengths]


class Hashing(Sums):
    """Orders words by a hash that differs between processes."""

    caught_by = "process"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        words = {"Add", "the", "two", "numbers", "and", "write", "sum"}
        return [Message(role="user", content=f"{' '.join(words)}: {task.id}")]


class Dated(Sums):
    """Pays less on some days of the week."""

    caught_by = "process"

    @reward
    def right(self, ctx: Context) -> float:
        return float(ctx.text.strip() == gold(ctx)) * (1 - time.time() // 86_400 % 7 / 10)


class Local(Sums):
    """Asks what the local time is."""

    caught_by = "process"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        hour = time.localtime(1_000_000_000 + task.index).tm_hour
        return [Message(role="user", content=f"It was {hour} o'clock. What is {task.id}?")]


class Homely(Sums):
    """Reads a file of the folder in which it happens to be started."""

    caught_by = "process"

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        title = Path("README.md").read_text().splitlines()[0]
        return [Message(role="user", content=f"{title}: what is {task.id}?")]


GENERATOR, DRAWN = random.Random(0), dict[str, list[Task]]()


class Raffled(Sums):
    """Draws the tasks of the split that is read first, and then those of the other, with one generator."""

    caught_by = "process"

    def tasks(self, split: str) -> list[Task]:
        if split not in DRAWN:
            DRAWN[split] = GENERATOR.sample(super().tasks(split), 20)
        return DRAWN[split]


class Judging(Sums):
    """Scores with a hash that differs between processes."""

    caught_by = "process"

    @reward
    def right(self, ctx: Context) -> Signal:
        is_lucky = hash(ctx.text) % 2 == 0
        return Signal("right", float(ctx.text.strip() == gold(ctx)) + 0.1 * is_lucky)


class Sized(EnvConfig):
    """How many tasks there are."""

    high: int = Field(31, ge=12, description="first number that is too large for a question")


class Cached(Sums):
    """Keeps the tasks of a split for all environments, whatever their options are."""

    caught_by = "options"
    Config = Sized
    read: ClassVar[dict[str, list[Task]]] = {}

    def tasks(self, split: str) -> list[Task]:
        if split not in self.read:
            self.read[split] = [task for task in self._all(split) if is_in_share(task.id, 0.25) == (split == "test")]
        return self.read[split]

    def _all(self, split: str) -> list[Task]:
        return [Task(f"{a}+{b}", (a, b)) for a in range(11, self.config.high) for b in range(31, 51)]
