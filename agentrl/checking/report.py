"""What `agentrl env check` prints and writes: lines for a terminal, JSON, and JUnit's XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from xml.etree import ElementTree as Xml

from agentrl.checking.check import Result, Status

MARKS = {Status.PASSED: "ok", Status.FAILED: "FAILED", Status.SKIPPED: "skipped", Status.UNCHECKED: "unknown"}
INDENT = " " * 8
NOT_RUN = (Status.SKIPPED, Status.UNCHECKED)


def folded(results: Iterable[Result]) -> Iterator[list[Result]]:
    """Yield each result as soon as it is there; successive ones that did not run for the same reason come together."""
    same: list[Result] = []
    for result in results:
        if same and _reason(result) != _reason(same[0]):
            yield same
            same = []
        same.append(result)
        if result.status not in NOT_RUN:
            yield same
            same = []
    if same:
        yield same


def _reason(result: Result) -> tuple[str, ...]:
    return (result.check.level, result.status, result.text)


def lines(same: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of a result: its question, and what to know or do about it; the reason alone if it did not run.

    Results that did not run for the same reason have one line.
    """
    result = same[0]
    mark = f"{MARKS[result.status]:<7} {', '.join(each.check.name for each in same)}"
    if result.status in NOT_RUN:
        first, *rest = result.text.splitlines() or [result.check.question]
        yield f"{mark}: {first}"
    else:
        rest = result.text.splitlines()
        yield f"{mark}: {result.check.question}"
    yield from (f"{INDENT}{line}" for line in rest)
    if result.status is Status.FAILED:
        yield f"{INDENT}→ {result.remedy}"


def summary(results: Sequence[Result]) -> str:
    """'12 passed, 1 failed, 2 skipped in 8 s'."""
    counts = Counter(result.status for result in results)
    seconds = sum(result.seconds for result in results)
    shown = (status for status in Status if counts[status] or status is not Status.UNCHECKED)
    return f"{', '.join(f'{counts[status]} {status}' for status in shown)} in {seconds:.0f} s"


def as_json(environment: str, results: Sequence[Result]) -> dict[str, Any]:
    """Return the whole report as plain values."""
    return {
        "environment": environment,
        "passed": all(result.status.is_fine for result in results),
        "checks": [
            {
                "name": result.check.name,
                "level": str(result.check.level),
                "question": result.check.question,
                "status": str(result.status),
                "text": result.text,
                "remedy": result.remedy,
                "seconds": round(result.seconds, 3),
            }
            for result in results
        ],
    }


def as_junit(environment: str, results: Sequence[Result]) -> bytes:
    """Return the report in the XML of JUnit, which CI systems read."""
    suites = Xml.Element("testsuites", name=f"agentrl env check {environment}")
    for level in dict.fromkeys(result.check.level for result in results):
        of_level = [result for result in results if result.check.level is level]
        counts = Counter(result.status for result in of_level)
        suite = Xml.SubElement(
            suites, "testsuite", name=level, tests=str(len(of_level)), errors=str(counts[Status.UNCHECKED]),
            failures=str(counts[Status.FAILED]), skipped=str(counts[Status.SKIPPED]),
        )  # fmt: skip
        for result in of_level:
            _add_case(suite, environment, result)
    report: bytes = Xml.tostring(suites, encoding="utf-8", xml_declaration=True)
    return report


def _add_case(suite: Xml.Element, environment: str, result: Result) -> None:
    check, text = result.check, _printable(result.text)
    case = Xml.SubElement(suite, "testcase", classname=environment, name=check.name, time=f"{result.seconds:.3f}")
    if result.status is Status.FAILED:
        Xml.SubElement(case, "failure", message=text).text = f"{check.question}\n{result.remedy}"
    elif result.status is Status.UNCHECKED:
        Xml.SubElement(case, "error", message=text).text = check.question
    elif result.status is Status.SKIPPED:
        Xml.SubElement(case, "skipped", message=text)


def _printable(text: str) -> str:
    """Return text without the control characters that XML cannot hold."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
