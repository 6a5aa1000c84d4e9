"""How the time to read a text grows with its length, for every function that reads hostile text in the event loop.

python -m benchmarks.growth [--only math] [--rounds 3]; a row for each function with its worst text; the last line is
the figures as JSON. Each text is read at n, 2n and 4n characters; the exponent is that of the last doubling: 1 is
linear, 2 quadratic. The command fails where a reading exceeds its time limit, or grows faster than `WORST` and is slow
enough to tell.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.timing import last_line

WORST = 1.6
"""The highest exponent that passes: noise and caches make a linear reading look like 1.3."""
SLOW_S = 0.02
"""A reading below this at 4n is fast, whatever its exponent."""
LIMIT_S = 5.0
"""After this a reading counts as one that hangs."""
ATOMS = (
    " ", "\n", "\t", "\u200b", "\u0301", "\x00", "a", "1", "-", ".", ",", "$", "#", "*", "`", "```", "```{", "\\",
    "{", "}", "(", ")", "[", "]", "<", ">", "/", "&", "%", "!", "?", "1,", "a ", " \n", "\\text{", "\\boxed{",
    "\\frac", "\\left", "\\,", "\\!", "{,}", "\\\\", "<think>", "</think>", "<answer>", "answer is ", "answer: ",
    "not ", "<tool_call>", '{"a":', "[[", "&#", "<!--", "<script>", "\u0315\u0300", "\u0315\uff9e", "a\u0315\u0300",
)  # fmt: skip
"""Pieces that hostile texts repeat."""


@dataclass(frozen=True)
class Row:
    """One function, in one area of the project; `frame` surrounds the repeated atom, `size` is n."""

    area: str
    name: str
    read: Callable[[str], object]
    frame: str = "{}"
    size: int = 50_000

    def text(self, atom: str, size: int) -> str:
        """A hostile text of about `size` characters."""
        return self.frame.replace("{}", atom * (size // len(atom)), 1)


@dataclass(frozen=True)
class Growth:
    """Cost of one hostile text for one function: seconds at 4n, and the exponent from 2n to 4n."""

    row: Row
    atom: str
    seconds: float
    exponent: float

    @property
    def is_bad(self) -> bool:
        """Whether a policy could use it to stall an event loop."""
        return self.seconds >= LIMIT_S or (self.exponent > WORST and self.seconds > SLOW_S)


# --- what is read --------------------------------------------------------------------------------------------------


def math_rows() -> Iterator[Row]:
    """envs/math: the position of the answer, and what the calling process and a worker read of it."""
    from agentrl_math.answer import readings
    from agentrl_math.boxes import boxes
    from agentrl_math.extract import from_gold, from_response
    from agentrl_math.grading import _graded
    from agentrl_math.limits import MAX_ANSWER_CHARS, MAX_READ_CHARS, LimitError
    from agentrl_math.policy import Policy

    number = Policy(fallback="number")
    yield Row("math", "boxes", boxes)
    yield Row("math", "from_gold", from_gold)
    for frame in ("{}", "{}5", "5{}", "\\boxed{5}{}", "{}\\boxed{5}", "Answer: {}5", "<answer>{}</answer>", "#### {}5"):
        yield Row("math", f"from_response {frame}", lambda text: from_response(text, Policy()), frame)
        yield Row("math", f"last number of {frame}", lambda text: from_response(text, number), frame)
    for frame in ("{}", "5{}", "{}5", "answer is {}", "(1,{})", "\\frac{1}{{}}"):
        for gold in ("5", "x+1", "\\{1,2\\}"):
            read = partial(_graded, gold=gold, policy=number)
            yield Row("math", f"graded {frame} for {gold}", read, f"\\boxed{{{frame}}}", MAX_READ_CHARS // 5)
        yield Row("math", f"graded, long {frame}", read, f"\\boxed{{{frame}}}", 20_000)
        unless_refused = partial(_unless, LimitError, readings)
        yield Row("math", f"readings {frame}", unless_refused, frame, MAX_ANSWER_CHARS // 5)


def _unless(refusal: type[Exception] | tuple[type[Exception], ...], read: Callable[[str], object], text: str) -> object:
    try:
        return read(text)
    except refusal:
        return None


def rollout_rows() -> Iterator[Row]:
    """What every rollout worker reads: a reply, and the arguments of a call."""
    from agentrl.env import BadCallError
    from agentrl.env.arguments import as_object
    from agentrl.env.tools import unknown_tool
    from agentrl.rollout.parsing import parse_reply
    from agentrl.types import ToolSpec, why_unsendable

    tools = [ToolSpec(name="add", description="Add.", parameters={})]
    call = '{"name": "add", "arguments": {"a": "{}"}}'
    frames = ("{}", "```{}", "```json {}```", "<think>{}", "<tool_call>{}", "<tool_call>x{}y", f"<tool_call>{call}")
    for frame in (*frames, f"```{call}```"):
        yield Row("rollout", f"parse_reply {frame}", lambda text: parse_reply(text, tools, 0), frame)
    for frame in ("{}", '{"a": "{}"}', '{"a": [{}]}', '{"{}": 1}'):
        yield Row("rollout", f"as_object {frame}", partial(_unless, BadCallError, as_object), frame)
    yield Row("rollout", "why_unsendable", lambda text: why_unsendable({text: [*text]}))
    yield Row("rollout", "unknown_tool", lambda text: unknown_tool(text, {}))


def tool_rows() -> Iterator[Row]:
    """What tools read: queries, addresses, expressions, and the answers of servers."""
    import httpx
    from agentrl_tools import Document, Index
    from agentrl_tools.calculator import calculate
    from agentrl_tools.hosts import canonical
    from agentrl_tools.http import MAX_URL, Gate
    from agentrl_tools.mcp.process import as_message
    from agentrl_tools.web import CODECS, charset, decoded

    from agentrl.env import BadCallError

    index = Index([Document("Mur", "A river of Austria."), Document("Graz", "A town on the Mur.")])
    gate = Gate(["*.example.com"])
    addresses = ("http://{}.example.com/", "http://example.com/{}", "http://{}@example.com/", "{}")
    yield Row("tools", "Index.rank", lambda text: index.rank(text, 3))
    yield Row("tools", "charset", charset, "text/html; charset={}")
    for codec in sorted(CODECS):

        def read(text: str, header: str = f"text/plain; charset={codec}") -> object:
            return decoded(text.encode(), header)

        yield Row("tools", f"decoded {codec}", read)
    for frame in ("{}", "1{}", "({})", "sqrt({}", "1+{}1"):
        yield Row("tools", f"calculate {frame}", partial(_unless, BadCallError, calculate), frame, 250)
    for frame in addresses:
        read = partial(_unless, (httpx.InvalidURL, ValueError), lambda text: gate.entries(canonical(httpx.URL(text))))
        yield Row("tools", f"Gate {frame}", read, frame, MAX_URL // 5)
    for frame in ("{}", '{"jsonrpc": "2.0", "id": 1, "result": {"content": "{}"}}'):
        yield Row("tools", f"as_message {frame}", lambda text: as_message(text.encode()), frame)


def env_rows() -> Iterator[Row]:
    """envs/code, search, functions and guess: programs, printed text, answers and guesses."""
    from agentrl_code.compare import same_text
    from agentrl_code.extract import MOST_PARSED, defines, extract, is_program
    from agentrl_code.show import shown
    from agentrl_code.values import weight
    from agentrl_code.verdict import printable
    from agentrl_functions.match import Wanted, mismatch
    from agentrl_guess.env import read_guess
    from agentrl_search.answers import f1, given_answer

    from agentrl.types import ToolCall, ToolSpec

    spec = ToolSpec(name="f", description="", parameters={"properties": {"x": {"type": "string"}}})

    def judged(text: str) -> str:
        call = ToolCall(type="function", function={"name": "f", "arguments": {"x": text}})
        return mismatch([call], [Wanted("f", {"x": ["a, b"]})], [spec])

    for frame in ("{}", "```{}", "```python\n{}", "{}\n```"):
        yield Row("envs", f"extract {frame}", extract, frame)
    for frame in ("{}", "a{}", "x = 'a{}'", "f({})", "#{}", "x = {}1"):
        yield Row("envs", f"is_program {frame}", is_program, frame, MOST_PARSED // 5)
        yield Row("envs", f"defines {frame}", lambda text: defines(text, "f"), frame, MOST_PARSED // 5)
    for frame in ("{}", "0.5{}", "{}0.5", "1{}x"):
        yield Row("envs", f"same_text {frame}", lambda text: same_text("0.5\n0.5", text, 0.1), frame)
    yield Row("envs", "weight", lambda text: weight(text.encode()))
    yield Row("envs", "shown", lambda text: shown([text]))
    yield Row("envs", "printable", printable)
    for frame in ("{}", "<answer>{}", "<answer>{}</answer>"):
        yield Row("envs", f"answer {frame}", lambda text: f1(given_answer(text), ["the Mur"]), frame)
    yield Row("envs", "mismatch", judged)
    for frame in ("{}", "1{}", "-{}1"):
        yield Row("envs", f"read_guess {frame}", read_guess, frame)


AREAS: dict[str, Callable[[], Iterator[Row]]] = {
    "math": math_rows,
    "rollout": rollout_rows,
    "tools": tool_rows,
    "envs": env_rows,
}


# --- how it is timed -----------------------------------------------------------------------------------------------


class OverLimitError(Exception):
    """A reading took longer than `LIMIT_S`."""


def _stop(*_: Any) -> None:
    raise OverLimitError


def seconds(row: Row, text: str, rounds: int) -> float:
    """The processor time of the shortest of `rounds` readings; LIMIT_S for one that exceeds it."""
    taken = LIMIT_S
    signal.signal(signal.SIGALRM, _stop)
    try:
        for turn in range(rounds):
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            started = time.thread_time()
            row.read(text + " " * turn)  # a text that no cache has seen
            taken = min(taken, time.thread_time() - started)
    except OverLimitError:
        return LIMIT_S
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return taken


def grown(row: Row, atom: str, rounds: int) -> Growth:
    """How one function's time grows on one hostile text."""
    last = previous = 0.0
    for factor in (1, 2, 4):
        previous, last = last, seconds(row, row.text(atom, factor * row.size), rounds)
        if last >= LIMIT_S:
            break
    exponent = math.log2(max(last, 1e-7) / max(previous, 1e-7)) if previous else math.inf
    return Growth(row, atom, last, exponent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the worst text for each function and every bad one; 1 where there is a bad one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(AREAS), action="append", help="areas; default: all")
    parser.add_argument("--rounds", type=int, default=2, help="readings of each text, of which the shortest counts")
    asked = parser.parse_args(arguments)
    found = []
    for area in asked.only or sorted(AREAS):
        for row in AREAS[area]():
            growths = [grown(row, atom, asked.rounds) for atom in ATOMS]
            worst = max(growths, key=lambda growth: (growth.is_bad, growth.seconds))
            for growth in [growth for growth in growths if growth.is_bad] or [worst]:
                print(_line(growth), flush=True)
            found += growths
    bad = [growth for growth in found if growth.is_bad]
    print(last_line("growth", {"texts": len(found), "bad": len(bad), "slowest_s": max(g.seconds for g in found)}))
    return 1 if bad else 0


def _line(growth: Growth) -> str:
    mark = "BAD " if growth.is_bad else "    "
    cost = f"{1000 * growth.seconds:9.2f} ms  n^{growth.exponent:.2f}"
    return f"{mark}{growth.row.area:6} {growth.row.name:45} {growth.atom!r:14} {cost}"


if __name__ == "__main__":
    sys.exit(main())
