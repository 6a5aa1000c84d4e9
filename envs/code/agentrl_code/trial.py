"""Test code in the judge's sandbox and the program in another: questions go one way, plain data comes back."""

import time
from typing import Any

from agentrl_sandbox import Sandbox

from agentrl_code.dialogue import Interpreter, Response
from agentrl_code.policy import Policy
from agentrl_code.program import Loaded
from agentrl_code.replies import Foreign, Reply
from agentrl_code.scripts import BOM, Script
from agentrl_code.verdict import Fault, Result, Status

MOST_QUESTIONS = 10_000
ASKING_S = 45.0
"""Wall clock for one test in addition to the program's: each question is an order to both sandboxes."""


_FUNCTION = ["list", "object", "function", None, True, True, ["list", "__call__"], ["list"], ["list", "object"]]
"""Description of the class of functions."""


class Trial:
    """Runner of the tests of one grading that need the judge."""

    def __init__(self, sandbox: Sandbox, program: Loaded, policy: Policy) -> None:
        self._judge, self._program = Interpreter("judge", sandbox, policy.answering), program
        self._policy = policy
        self.complaint = ""
        """Why no more tests can run; '' if they can."""

    async def result(self, script: Script, latest: float) -> Result:
        """Run one test to its end, but no longer than until `latest`."""
        last: Reply | None = None
        until = min(latest, time.monotonic() + self._policy.limits.wall_s + ASKING_S)
        response = await self._judge.order(("begin", _order(script, self._policy)))
        for count in range(MOST_QUESTIONS):
            if count and time.monotonic() >= until:
                self.complaint = "was stuck in an earlier test"
                return Result(Status.ERROR, reason=f"{count} answers of the program took all of the test's time")
            frame = _frame(response)
            if frame is None:
                self.complaint = "was stuck in an earlier test"
                return _stuck(response, last)
            if frame[0] == "done":
                return _outcome(script, frame[1:], last)
            answers = await self._program.answer(frame[1:])
            if answers.complaint:
                self.complaint = answers.complaint
                return Result(Status.ERROR, _call(frame), reason=answers.complaint)
            reply = answers.replies[0]
            last = reply if _is_answer(frame, reply) else last
            response = await self._judge.order(("resume", [reply.kind, *reply.parts]))
        self.complaint = "was stuck in an earlier test"
        return Result(Status.FAILED, reason=f"the test calls the program more than {MOST_QUESTIONS} times")


def _order(script: Script, policy: Policy) -> list[Any]:
    in_place = script.in_place if isinstance(script.in_place, bool) else list(script.in_place)
    return [policy.setup.removeprefix(BOM), script.source, policy.entry, list(script.modules), in_place]


def _frame(response: Response) -> Any:
    return response.frames[0] if response.frames and not response.ending.hits else None


def _is_answer(frame: list[Any], reply: Reply) -> bool:
    """Return whether the program has really answered, rather than only shown that it has a function.

    A class is an answer, and so is the description of any class but that of functions, since the program can forge it.
    """
    _, operation, *_ = frame
    if operation == "class":
        return bool(reply.parts[0] != _FUNCTION)
    is_found = operation == "name" and isinstance(reply.value, Foreign) and reply.parts[0][0] != "class"
    return not is_found


def _stuck(response: Response, last: Reply | None) -> Result:
    """Return the result if the judge did not finish; the program is at fault if it has answered anything."""
    limits = ", ".join(sorted(response.ending.hits)) or "time"
    reason = f"the test did not end within its limits: {limits}"
    return Result(Status.FAILED, reason=reason) if last else Result(Status.INVALID, reason=reason, fault="task")


def _outcome(script: Script, report: list[Any], last: Reply | None) -> Result:
    """Return the result from the judge's report. If the program has answered anything, it is at fault for failures."""
    outcome, message, line, asserted = report
    text = f"`{script.source.splitlines()[line - 1].strip()}`" if line else "the test"
    fault: Fault = "program" if last else "task"
    if outcome == "task":
        return Result(Status.INVALID, text, reason=message, fault="task")
    if outcome == "invalid" or not last:
        return Result(Status.INVALID, text, reason=message or "it never calls the program", fault=fault)
    if outcome == "failed":
        return Result(Status.FAILED, text, reason=f"the program {message}" if message else "does not hold")
    if outcome == "raised":
        is_programs = last is not None and last.kind == "raised"
        return Result(Status.ERROR if is_programs else Status.FAILED, text, reason=f"raised {message}")
    if not asserted:
        return Result(Status.INVALID, text, reason="none of its assertions ran", fault=fault)
    return Result(Status.PASSED, text)


def _call(frame: list[Any]) -> str:
    _, operation, target, *_ = frame
    return f"`{target[1]}(…)`" if operation == "call" and target[0] == "name" else "the test"
