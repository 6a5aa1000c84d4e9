"""Grading of reference programs against a fresh `python -I` for each, and of mutated ones against the plain tests.

python -m benchmarks.grading HUMANEVAL.jsonl.gz [MBPP.jsonl] [--rounds 3] [--mutants 4]; the last line is the figures as
JSON. Grading is timed until the pool has refilled itself. A mutant that the plain tests pass as well is equivalent as
far as they tell; one that only the grader passes would be a hole, one that only the grader fails an injustice.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from agentrl_code import Assert, Grader, Policy, Status
from agentrl_code.data import load
from agentrl_code.problem import Problem

from benchmarks.timing import alternated, column, last_line

LIMIT_S = 6.0
T = TypeVar("T")
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


# --- the two arms --------------------------------------------------------------------------------------------------


async def graded(grader: Grader, problem: Problem, program: str) -> Status:
    """The grader's word."""
    policy = Policy(problem.entry, problem.setup, timeout_s=LIMIT_S)
    return (await grader.grade(program, problem.hidden, policy)).status


async def plain(problem: Problem, program: str) -> bool:
    """Whether the program and its tests, in one file, end with 0: what people do without a grader."""
    tests = "\n".join(test.source for test in problem.hidden if isinstance(test, Assert))
    setup = "" if problem.opening else problem.setup
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-c", f"{program}\n{setup}\n{tests}",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return await asyncio.wait_for(process.wait(), LIMIT_S) == 0
    except TimeoutError:
        process.kill()
        await process.wait()
        return False


async def refilled(grader: Grader) -> None:
    """Until the pool holds what it held before, and everything it let go is gone."""
    while (count := grader.pool.count).starting or count.closing or count.leased:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def at_once(width: int, calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """The results of all calls, `width` of them at a time."""
    seats = asyncio.Semaphore(width)

    async def seated(call: Callable[[], Awaitable[T]]) -> T:
        async with seats:
            return await call()

    return list(await asyncio.gather(*map(seated, calls)))


async def speed(problems: list[Problem], width: int, rounds: int) -> dict[str, float]:
    """Milliseconds for each reference program, graded and plain, and their ratio: medians and the best round."""
    grader = Grader(at_once=width)

    async def grading() -> dict[str, float]:
        said = await at_once(width, [partial(graded, grader, p, p.program(p.solution)) for p in problems])
        await refilled(grader)
        return {"passed": said.count(Status.PASSED)}

    async def fresh() -> dict[str, float]:
        return {"passed": sum(await at_once(width, [partial(plain, p, p.program(p.solution)) for p in problems]))}

    try:
        taken = await alternated(rounds, {"graded": grading, "python -I": fresh})
    finally:
        await grader.aclose()
    ours, theirs = taken["graded"], taken["python -I"]
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(ours, theirs, strict=True)]
    return {
        "graded_ms": 1e3 * column(ours, "seconds") / len(problems),
        "python_ms": 1e3 * column(theirs, "seconds") / len(problems),
        "ratio": sorted(ratios)[len(ratios) // 2],
        "best_ratio": min(ratios),
        "passed": column(ours, "passed"),
        "plain_passed": column(theirs, "passed"),
    }


# --- mutants -------------------------------------------------------------------------------------------------------


def mutants(problem: Problem, most: int) -> list[str]:
    """Up to `most` different programs, each with one mechanical fault; what the question brings is spared."""
    tree = ast.parse(problem.solution)
    given = len(ast.parse(f"{problem.opening}\n    pass\n").body) - 1 if problem.opening else 0
    found = {ast.unparse(ast.fix_missing_locations(mutant)) for mutant in _mutated(tree, given)} - {ast.unparse(tree)}
    chosen = random.Random(problem.key).sample(sorted(found), min(most, len(found)))
    return [problem.program(mutant) for mutant in chosen]


def _mutated(tree: ast.Module, given: int) -> Iterator[ast.Module]:
    """Every fault, but for the first `given` statements."""
    spared = {id(node) for statement in tree.body[:given] for node in ast.walk(statement)}
    for number, node in enumerate(ast.walk(tree)):
        for change in _changes(node) if id(node) not in spared else ():
            mutant = copy.deepcopy(tree)
            change(list(ast.walk(mutant))[number])
            yield mutant


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    """Off by one, the comparison swapped, None returned, the first statement dropped."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield lambda twin: setattr(twin, "value", twin.value + 1)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        yield lambda twin: twin.ops.__setitem__(0, SWAPPED[type(twin.ops[0])]())
    elif isinstance(node, ast.Return) and node.value is not None:
        yield lambda twin: setattr(twin, "value", None)
    elif isinstance(node, ast.FunctionDef) and len(node.body) > 1:
        yield lambda twin: twin.body.pop(_first(twin.body))


def _first(body: list[ast.stmt]) -> int:
    """The place of the first statement that is no docstring."""
    return int(isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))


async def judged(problems: list[Problem], width: int, most: int) -> dict[str, Any]:
    """How many mutants each side passes, and on which programs they differ."""
    grader = Grader(at_once=width)
    cases = [(p, program) for p in problems for program in mutants(p, most)]
    try:
        ours = await at_once(width, [partial(graded, grader, *case) for case in cases])
        theirs = await at_once(width, [partial(plain, *case) for case in cases])
    finally:
        await grader.aclose()
    pairs = list(zip(cases, ours, theirs, strict=True))
    for (problem, program), word, is_plain in pairs:
        if (word is Status.PASSED) != is_plain:
            print(f"--- {problem.entry}: grader {word}, plain {is_plain}\n{program}\n")
    return {
        "mutants": len(cases),
        "failed": sum(word in (Status.FAILED, Status.ERROR) for word in ours),
        "invalid": ours.count(Status.INVALID),
        "equivalent": sum(word is Status.PASSED and is_plain for _, word, is_plain in pairs),
        "holes": sum(word is Status.PASSED and not is_plain for _, word, is_plain in pairs),
        "injustices": sum(word is not Status.PASSED and is_plain for _, word, is_plain in pairs),
    }


async def measured(path: str, args: argparse.Namespace) -> dict[str, Any]:
    problems = load(path)[: args.most or None]
    cores = len(os.sched_getaffinity(0))
    figures: dict[str, Any] = {"problems": len(problems)}
    for name, width in (("one at a time", 1), ("all cores", cores)):
        began = time.perf_counter()
        figures[name] = await speed(problems, width, args.rounds)
        print(f"{path}, {name}: {figures[name]} in {time.perf_counter() - began:.0f} s", flush=True)
    if args.mutants:
        figures["mutation"] = await judged(problems, cores, args.mutants)
        print(f"{path}: {figures['mutation']}", flush=True)
    return figures


async def run(args: argparse.Namespace) -> dict[str, Any]:
    return {Path(path).name: await measured(path, args) for path in args.data}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="+", help="HumanEval's or MBPP's file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mutants", type=int, default=4, help="of each reference program; 0: none")
    parser.add_argument("--most", type=int, default=0, help="problems of each file; 0: all")
    args = parser.parse_args()
    print(last_line("grading", asyncio.run(run(args))))


if __name__ == "__main__":
    main()
