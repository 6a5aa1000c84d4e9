"""The environment: a hidden number; each guess is answered by "higher" or "lower"."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import re2
from pydantic import Field, model_validator

from agentrl.env import Context, Env, EnvConfig, Limits, Message, Policy, Reply, Task, Turn, reward, text_of

DIGITS: Any = re2.compile(r"\.*\p{Nd}[\p{Nd}.]*")
MAX_DIGITS = 9
TEST_SHARE = 4
MAX_ENDS = 8
FEEDBACK: Any = re2.compile(r"It is (higher|lower) than (-?\d+)")
PLEA = "Answer with one number only."


class GuessConfig(EnvConfig):
    """The `--env.*` keys."""

    low: int = Field(1, ge=0, description="smallest number that may be hidden")
    high: int = Field(10, le=1000, description="largest number that may be hidden; a task's range may end earlier")
    turns: int = Field(4, ge=1, le=16, description="guesses in one episode")

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.high - self.low < TEST_SHARE:
            raise ValueError(f"high must be at least low + {TEST_SHARE}, so that both splits contain a number")
        return self


@dataclass(frozen=True, slots=True)
class Game:
    """A hidden number `secret` in the range from the configured `low` to `high`, both included."""

    high: int
    secret: int


class GuessEnv(Env):
    """Find a hidden number; each guess is answered by "higher" or "lower"."""

    Config = GuessConfig
    config: GuessConfig
    limits = Limits(max_turns=16)
    blocking = False

    def tasks(self, split: str) -> list[Task]:
        """Return one task for each number of each range; about a quarter of these pairs belong to "test"."""
        low, held_out = self.config.low, self.held_out()
        games = (Game(end, n) for end in self.ends() for n in range(low, end + 1))
        return [Task(f"{low}-{g.high}/{g.secret}", g) for g in games if (g in held_out) == (split == "test")]

    def held_out(self) -> frozenset[Game]:
        """Return the games of "test": a quarter of each range, without its ends and without neighbours.

        Both neighbours of a held-out number are trained in its range, so that the search which is best for the trained
        numbers comes across the others; a range with a longer gap teaches to skip it. Every number is trained in some
        range: those that smaller ranges trained most often are held out first, equal ones in the order of a hash.
        """
        low, held_out, trained = self.config.low, set[Game](), Counter[int]()
        for end in self.ends():
            chosen = set[int]()
            for n in sorted(range(low + 1, end), key=lambda n: (-trained[n], digest(f"guess/{low}-{end}/{n}"))):
                if len(chosen) < (end - low + 3) // TEST_SHARE and not chosen & {n - 1, n + 1}:
                    chosen.add(n)
            trained.update(set(range(low, end + 1)) - chosen)
            held_out |= {Game(end, n) for n in chosen}
        return frozenset(held_out)

    def ends(self) -> list[int]:
        """Ends of the ranges: up to eight numbers of the upper half, `high` included."""
        low, high = self.config.low, self.config.high
        step = -(-(high - low) // (2 * MAX_ENDS))
        return list(range(high, low + (high - low) // 2 - 1, -step))[:MAX_ENDS][::-1]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """State the rules; `ctx.state` keeps the range that is still possible."""
        low, high = self.config.low, task.data.high
        ctx.state.secret, ctx.state.low, ctx.state.high = task.data.secret, low, high
        ctx.state.found, ctx.state.others = False, high - low
        text = f"I am thinking of a number from {low} to {high}. What is it? {PLEA}"
        return [Message(role="user", content=text)]

    def respond(self, turn: Turn, ctx: Context) -> Reply:
        """Compare the guess with the number; the episode ends when it is found or no turn is left."""
        state, guess = ctx.state, read_guess(turn.text)
        if guess is None:
            answer = "I cannot find a number."
        elif guess < state.secret:
            state.low = max(state.low, guess + 1)
            answer = f"It is higher than {guess}. Guess again."
        elif guess > state.secret:
            state.high = min(state.high, guess - 1)
            answer = f"It is lower than {guess}. Guess again."
        else:
            state.found, state.low, state.high = True, guess, guess
        if state.found or len(ctx.turns) >= self.config.turns:
            return Reply.end()
        return Reply.say(f"{answer} {PLEA}")

    @reward
    def found(self, ctx: Context) -> float:
        """1 for the first guess, a little less for each further one, at least 0.5; 0 if it was not found."""
        return 1.0 - 0.5 * (len(ctx.turns) - 1) / self.config.turns if ctx.state.found else 0.0

    @reward(weight=0.5)
    def narrowed(self, ctx: Context) -> float:
        """Return the share of the range's other numbers that the guesses ruled out; 1 if it was found."""
        return 1.0 - float((ctx.state.high - ctx.state.low) / ctx.state.others)

    def oracle(self, task: Task) -> Policy:
        """Bisection, which reads the feedback and not the secret."""
        return lambda messages: str(bisect(self.config.low, task.data.high, messages))

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Policies that talk instead of guessing."""
        everything = " ".join(map(str, range(self.config.low, task.data.high + 1)))
        return {
            "silence": [""] * self.config.turns,
            "every number at once": [everything] * self.config.turns,
            "claims to have found it": ["I found your number, well done."] * self.config.turns,
        }


def digest(text: str) -> bytes:
    """Return a hash that is the same in every process."""
    return hashlib.sha256(text.encode()).digest()


def read_guess(text: str) -> int | None:
    """Return the number in a turn; None if there is none, or if there are several different ones."""
    numbers, end = set[int](), 0
    for match in DIGITS.finditer(text):
        digits = match[0].rstrip(".")
        if digits.isdecimal() and len(digits) <= MAX_DIGITS:
            between = text[end : match.start()]
            is_negative = between.endswith("-") and (end == 0 or len(between) > 1)
            numbers.add(-int(digits) if is_negative else int(digits))
        end = match.end()
    return numbers.pop() if len(numbers) == 1 else None


def bisect(low: int, high: int, messages: list[Message]) -> int:
    """Return the middle of the range that the feedback leaves possible."""
    for message in messages:
        if message["role"] == "user" and (match := FEEDBACK.match(text_of(message))):
            bound = int(match[2])
            low, high = (bound + 1, high) if match[1] == "higher" else (low, bound - 1)
    return (low + high) // 2
