"""Test code in the judge's sandbox, with the program in another: questions go one way, plain data comes back."""

import time
from typing import Any

from agentrl_sandbox import Sandbox

from agentrl_code.dialogue import Interpreter, Said
from agentrl_code.policy import Policy
from agentrl_code.program import Loaded
from agentrl_code.replies import Foreign, Reply
from agentrl_code.scripts import BOM, Script
from agentrl_code.verdict import Fault, Result, Status

MOST_QUESTIONS = 10_000
ASKING_S = 45.0
"""Wall clock for one test beyond the program's own: each question is an order to either sandbox."""


_FUNCTION = ["list", "object", "function", None, True, True, ["list", "__call__"], ["list"], ["list", "object"]]
"""What is said of the class of functions."""


class Trial:
    """The tests of one grading that only the judge can run."""

    def __init__(self, sandbox: Sandbox, program: Loaded, policy: Policy) -> None:
        self._judge, self._program = Interpreter("judge", sandbox, policy.answering), program
        self._policy = policy
        self.complaint = ""
        """Why no more tests can be run."""

    async def result(self, script: Script, latest: float) -> Result:
        """Run one test to its end, but no longer than until `latest`."""
        last: Reply | None = None
        until = min(latest, time.monotonic() + self._policy.limits.wall_s + ASKING_S)
        said = await self._judge.order(("begin", _order(script, self._policy)))
        for asked in range(MOST_QUESTIONS):
            if asked and time.monotonic() >= until:
                self.complaint = "was stuck in an earlier test"
                return Result(Status.ERROR, reason=f"{asked} answers of the program's took all of the test's time")
            frame = _frame(said)
            if frame is None:
                self.complaint = "was stuck in an earlier test"
                return _stuck(said, last)
            if frame[0] == "done":
                return _outcome(script, frame[1:], last)
            answers = await self._program.answer(frame[1:])
            if answers.complaint:
                self.complaint = answers.complaint
                return Result(Status.ERROR, _call(frame), reason=answers.complaint)
            reply = answers.replies[0]
            last = reply if _tells(frame, reply) else last
            said = await self._judge.order(("resume", [reply.kind, *reply.parts]))
        self.complaint = "was stuck in an earlier test"
        return Result(Status.FAILED, reason=f"the test asks the program more than {MOST_QUESTIONS} times")


def _order(script: Script, policy: Policy) -> list[Any]:
    in_place = script.in_place if isinstance(script.in_place, bool) else list(script.in_place)
    return [policy.setup.removeprefix(BOM), script.source, policy.entry, list(script.modules), in_place]


def _frame(said: Said) -> Any:
    return said.frames[0] if said.frames and not said.ending.hits else None


def _tells(frame: list[Any], reply: Reply) -> bool:
    """Return whether the program has answered, and not merely been found to have a function.

    A class is an answer, and so is whatever is said of one but that of functions: that, the program can forge.
    """
    _, operation, *_ = frame
    if operation == "class":
        return bool(reply.parts[0] != _FUNCTION)
    is_found = operation == "name" and isinstance(reply.value, Foreign) and reply.parts[0][0] != "class"
    return not is_found


def _stuck(said: Said, last: Reply | None) -> Result:
    """Return the judge did not come to an end: over the program's answers, if it ever heard one."""
    limits = ", ".join(sorted(said.ending.hits)) or "time"
    reason = f"the test did not end within its limits: {limits}"
    return Result(Status.FAILED, reason=reason) if last else Result(Status.INVALID, reason=reason, fault="task")


def _outcome(script: Script, told: list[Any], last: Reply | None) -> Result:
    """The result, from the judge's last words and the program's. What follows an answer is put down to the answer."""
    outcome, said, line, asserted = told
    text = f"`{script.source.splitlines()[line - 1].strip()}`" if line else "the test"
    fault: Fault = "program" if last else "task"
    if outcome == "task":
        return Result(Status.INVALID, text, reason=said, fault="task")
    if outcome == "invalid" or not last:
        return Result(Status.INVALID, text, reason=said or "it never calls the program", fault=fault)
    if outcome == "failed":
        return Result(Status.FAILED, text, reason=f"the program {said}" if said else "does not hold")
    if outcome == "raised":
        is_programs = last is not None and last.kind == "raised"
        return Result(Status.ERROR if is_programs else Status.FAILED, text, reason=f"raised {said}")
    if not asserted:
        return Result(Status.INVALID, text, reason="no assertion of it ran", fault=fault)
    return Result(Status.PASSED, text)


def _call(frame: list[Any]) -> str:
    _, operation, target, *_ = frame
    return f"`{target[1]}(…)`" if operation == "call" and target[0] == "name" else "the test"
