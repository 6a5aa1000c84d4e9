"""Grading of programs, each in a fresh sandbox, as many at once as the machine can use."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from agentrl_sandbox import BrokenError, Limits, LostError, Pool, Sandbox, SandboxError, UnavailableError, retry

from agentrl_code.approval import CheckerError, Checkers, why_unfit
from agentrl_code.cases import Assert, Call, Io, Test, why_unusable
from agentrl_code.claims import Claim, plan
from agentrl_code.compare import same, same_text
from agentrl_code.policy import MIB, Clock, Policy
from agentrl_code.program import Loaded, Printed, run_script
from agentrl_code.replies import ForeignError, Reply, handled
from agentrl_code.scripts import BOM, Script
from agentrl_code.show import shown
from agentrl_code.trial import Trial
from agentrl_code.values import UnreadableError, to_tree
from agentrl_code.verdict import Result, Status, Verdict

MOST_PROGRAM_CHARS = 1 << 18
SANDBOX = Limits(memory_bytes=512 * MIB, disk_bytes=32 * MIB, processes=128)
Question = Claim | Call
Waiting = Callable[[], AbstractContextManager[None]]
RETRY = 1.2
"""Time limit of a second attempt, relative to the first one's; it matters only if the sandbox hangs."""
LATE = "was not reached"


class Grader:
    """A pool of sandboxes and a queue for it. Belongs to the event loop that first uses it."""

    def __init__(self, pool: Pool | None = None, at_once: int = 0, packages: Sequence[str] = ()) -> None:
        """Create a grader; programs can import `packages` (installed distributions) unless `pool` is passed."""
        cores = len(os.sched_getaffinity(0))
        self._at_once = at_once or 2 * cores
        self.pool = pool or Pool(limits=SANDBOX, ready=self._at_once, most=4 * self._at_once, packages=packages)
        self._checkers = Checkers()
        self._seats = asyncio.Semaphore(self._at_once)
        self._clocks: dict[asyncio.Timeout, float] = {}
        """Timeouts of callers that wait for a seat, with their durations."""

    async def aclose(self) -> None:
        """Close every sandbox and the processes of checkers."""
        await self._checkers.aclose()
        await self.pool.close()

    async def grade(
        self, program: str, tests: Sequence[Test], policy: Policy, waiting: Waiting = nullcontext
    ) -> Verdict:
        """Grade a program; failures that are not its fault make the verdict invalid (fault "task" or "infra").

        `waiting()` is entered while all seats are taken, because that time is not the program's.
        """
        program = program.removeprefix(BOM)
        if reason := why_unusable(tests, policy.setup) or _why_unchecked(tests):
            return Verdict.invalid(reason, "task")
        if reason := _why_no_program(program):
            return Verdict.of((Result(Status.ERROR, reason=reason),))
        try:
            with waiting():
                await self._seat(policy.wait_s)
        except TimeoutError:
            return Verdict.invalid(f"no sandbox became free within {policy.wait_s:g} s", "infra")
        try:
            return await self._judged(program, tests, policy)
        except UnreadableError as problem:
            return Verdict.invalid(f"the answer cannot be read: {problem}", "program")
        except SandboxError as problem:
            return Verdict.invalid(f"the sandbox failed: {problem}", "infra")
        finally:
            self._leave()

    async def _seat(self, wait_s: float) -> None:
        """Wait for a seat; TimeoutError if no seat at all becomes free for `wait_s`."""
        async with asyncio.timeout(wait_s) as clock:
            self._clocks[clock] = wait_s
            try:
                await self._seats.acquire()
            finally:
                del self._clocks[clock]

    def _leave(self) -> None:
        """Give back a seat and restart the timeouts of the queue, which has moved."""
        self._seats.release()
        now = asyncio.get_running_loop().time()
        for clock, wait_s in self._clocks.items():
            if not clock.expired():
                clock.reschedule(now + wait_s)

    async def _judged(self, program: str, tests: Sequence[Test], policy: Policy) -> Verdict:
        """Grade a program; if a sandbox is lost, retry, and blame the program if it breaks the second one too."""

        def graded(sandbox: Sandbox) -> Awaitable[Verdict]:
            return self._graded(sandbox, program, tests, policy)

        try:
            async with self.pool.lease() as sandbox:
                return await graded(sandbox)
        except LostError:
            pass
        try:
            return await retry(self.pool, graded, within_s=RETRY * policy.total_s)
        except BrokenError as problem:
            return Verdict.of((Result(Status.ERROR, reason=f"the program breaks its sandbox: {problem}"),))

    async def _graded(self, sandbox: Sandbox, program: str, tests: Sequence[Test], policy: Policy) -> Verdict:
        clock = Clock(policy)
        functions = await self._functions(program, tests, policy, sandbox, clock)
        texts = await _texts(program, tests, sandbox, clock, self._checkers)
        return Verdict.of(tuple({**functions, **texts}[number] for number in range(len(tests))))

    async def _functions(
        self, program: str, tests: Sequence[Test], policy: Policy, sandbox: Sandbox, clock: Clock
    ) -> dict[int, Result]:
        """Return the results of `Call` and `Assert` tests by their numbers, from one loaded program."""
        asked = {number: _questions(test, policy) for number, test in enumerate(tests) if not isinstance(test, Io)}
        if not asked:
            return {}
        loaded = Loaded(program, sandbox, policy.answering)
        questions = [question for each in asked.values() if not isinstance(each, Script) for question in each]
        answers = await loaded.load([_request(question) for question in questions])
        complaint = answers.complaint
        replies, results = iter(answers.replies), dict[int, Result]()
        for number, each in asked.items():
            if not isinstance(each, Script):
                results[number] = _all(
                    [
                        await _result(question, next(replies, None), clock, complaint, self._checkers)
                        for question in each
                    ]
                )
        scripts = {number: each for number, each in asked.items() if isinstance(each, Script)}
        if not scripts:
            return results
        if complaint:
            return results | dict.fromkeys(scripts, Result(Status.ERROR, reason=f"the program {complaint}"))
        async with self._judges_own() as judge:
            trial = Trial(judge, loaded, policy)
            for number, script in scripts.items():
                is_over = trial.complaint or not clock.policy
                results[number] = (
                    Result(Status.ERROR, reason=LATE) if is_over else await trial.result(script, clock.until)
                )
        return results

    @asynccontextmanager
    async def _judges_own(self) -> AsyncIterator[Sandbox]:
        """Lease the judge's sandbox; UnavailableError if it is lost, since LostError is for the program's sandbox."""
        try:
            judge = await self.pool.take()
        except LostError as problem:
            raise UnavailableError(f"no sandbox for the judge: {problem}") from problem
        try:
            yield judge
        finally:
            self.pool.drop(judge)


def _why_unchecked(tests: Sequence[Test]) -> str:
    for number, test in enumerate(tests, 1):
        if isinstance(test, Call | Io) and test.checker:
            expected = test.expected if isinstance(test, Call) else test.expected_stdout
            if reason := why_unfit(test.checker, expected):
                return f"test {number} {reason}"
    return ""


def _why_no_program(program: str) -> str:
    if not program.strip():
        return "there is no program"
    if len(program) > MOST_PROGRAM_CHARS:
        return f"the program is longer than {MOST_PROGRAM_CHARS} characters"
    try:
        program.encode()
    except UnicodeEncodeError:
        return "the program is not Unicode text"
    return ""


def _questions(test: Call | Assert, policy: Policy) -> tuple[Question, ...] | Script:
    return (test,) if isinstance(test, Call) else plan(test.source, policy.entry, policy.setup, test.in_place)


def _request(question: Question) -> list[object]:
    return [
        "call",
        ["name", question.function],
        to_tree(list(question.args)),
        to_tree(dict(question.kwargs)),
        False,
    ]


async def _result(question: Question, reply: Reply | None, clock: Clock, complaint: str, checkers: Checkers) -> Result:
    asked, wanted = _shown(question)
    if reply is None:
        return Result(Status.ERROR, asked, reason=f"the program {complaint}")
    if reply.complaint:
        status = Status.ERROR if reply.kind == "raised" else Status.FAILED
        return Result(status, asked, wanted=wanted, reason=f"the program {reply.complaint}")
    policy = clock.policy
    if not policy:
        return Result(Status.ERROR, asked, reason=LATE)
    try:
        is_right = await _is_right(question, reply, policy, checkers)
    except ForeignError as problem:
        return Result(Status.FAILED, asked, wanted=wanted, reason=f"the program gave {problem}")
    except CheckerError as problem:
        return problem.result(asked, shown(reply.value))
    return Result(Status.PASSED if is_right else Status.FAILED, asked, shown(reply.value), wanted)


async def _is_right(question: Question, reply: Reply, policy: Policy, checkers: Checkers) -> bool:
    if isinstance(question, Call):
        if question.checker:
            args = question.args, reply.parts[0], question.expected
            return await checkers.is_approved(question.checker, *args, policy.checker_s)
        with handled():
            return same(question.expected, reply.value, policy.float_tolerance)
    try:
        return bool(question.holds(reply.value))
    except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError, AttributeError):
        return False  # for example None < 3


def _shown(question: Question) -> tuple[str, str]:
    if isinstance(question, Claim):
        return question.text, question.wanted
    words = [shown(arg) for arg in question.args] + [
        f"{name}={shown(value)}" for name, value in question.kwargs.items()
    ]
    return f"{question.function}({', '.join(words)})", "" if question.checker else shown(question.expected)


def _all(results: list[Result]) -> Result:
    """Return the result of a test with several claims: that of the first claim that fails."""
    return next((result for result in results if result.status is not Status.PASSED), results[0])


async def _texts(
    program: str, tests: Sequence[Test], sandbox: Sandbox, clock: Clock, checkers: Checkers
) -> dict[int, Result]:
    """Return the results of `Io` tests by number; after a limit is hit or the time is up, the rest is not run."""
    results, is_over = dict[int, Result](), False
    for number, test in enumerate(tests):
        if isinstance(test, Io):
            asked = f"with the input {shown(test.stdin)}"
            policy = clock.policy
            if is_over or not policy:
                results[number] = Result(Status.ERROR, asked, reason=LATE)
                continue
            printed = await run_script(program, test.stdin, sandbox, policy.limits)
            is_over = printed.is_over
            results[number] = await _text_result(asked, test, printed, clock, checkers)
            clock.charge(printed.wall_s, printed.cpu_s)
    return results


async def _text_result(asked: str, test: Io, printed: Printed, clock: Clock, checkers: Checkers) -> Result:
    stdout = printed.stdout
    wanted, policy = shown(test.expected_stdout), clock.policy
    if not policy:
        return Result(Status.ERROR, asked, shown(stdout), wanted, LATE)
    if printed.complaint:
        return Result(Status.ERROR, asked, shown(stdout), wanted, f"the program {printed.complaint}")
    if test.checker:
        try:
            args = test.stdin, stdout, test.expected_stdout
            is_right = await checkers.is_approved(test.checker, *args, policy.checker_s)
        except CheckerError as problem:
            return problem.result(asked, shown(stdout))
    else:
        is_right = same_text(test.expected_stdout, stdout, policy.float_tolerance)
    return Result(Status.PASSED if is_right else Status.FAILED, asked, shown(stdout), wanted)
