"""`verify(response, gold)`: simple cases in this process, the rest in a worker that can be killed."""

import asyncio
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from agentrl_math import pool as pools
from agentrl_math.answer import readings
from agentrl_math.compare import Comparison
from agentrl_math.exact import UndefinedError
from agentrl_math.expr import Node
from agentrl_math.extract import Extraction, from_gold, from_response
from agentrl_math.forms import Answer, Items, Opaque, Relation, Scalar
from agentrl_math.judge import GoldUndefinedError, Quick, UndecidedError, close, infinity, is_beyond, small
from agentrl_math.latex import clean, is_balanced, is_broken, squeeze
from agentrl_math.limits import GOLD_SHARE, MAX_ANSWER_CHARS, MAX_READ_CHARS, LimitError
from agentrl_math.literal import is_value, literal
from agentrl_math.policy import Policy
from agentrl_math.pool import Pool, PoolError
from agentrl_math.settled import parts
from agentrl_math.units import bare_number
from agentrl_math.verdict import Status, Verdict
from agentrl_math.worded import is_choice, unlabelled


def verify(response: str, gold: str, *, pool: Pool | None = None, **policy: Any) -> Verdict:
    """Grade a response against a gold, with the fields of `Policy` as keywords; from any thread, in at most about 2 s.

    `pool` decides cases that are not simple; by default one pool per process, created on demand.
    No text makes it raise; TypeError or ValueError for an unknown policy, TypeError for a response that is not a str.
    """
    grading = _graded(response, gold, Policy.of(**policy))
    return grading if isinstance(grading, Verdict) else grading.decided(pool or pools.default())


async def averify(response: str, gold: str, *, pool: Pool | None = None, **policy: Any) -> Verdict:
    """Run `verify` without blocking the event loop."""
    grading = _graded(response, gold, Policy.of(**policy))
    if isinstance(grading, Verdict):
        return grading
    pool, began = pool or pools.default(), time.monotonic()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(pool.threads, lambda: grading.decided(pool, time.monotonic() - began))


def why_ungradable(gold: str) -> str:
    """Return why this gold cannot be used for grading; "" if it can."""
    return _gold(gold).invalid


@dataclass(frozen=True)
class _Gold:
    """A parsed gold; `invalid` says why it cannot be used."""

    text: str
    number: Fraction | None = None
    answers: tuple[Answer, ...] = ()
    invalid: str = ""

    @property
    def is_number(self) -> bool:
        """Whether this is one plain number, with or without a unit."""
        first = self.answers[0] if self.answers else None
        return self.number is not None or (isinstance(first, Scalar) and is_value(first.node))


_NO_ANSWER = Verdict(Status.NO_ANSWER, "no answer is marked as the policy requires, or it is denied or doubted")


@dataclass(frozen=True)
class _Open:
    """A grading that this process cannot decide."""

    gold: str
    given: tuple[str, ...]
    policy: Policy
    extracted: str

    def decided(self, pool: Pool, waited_s: float = 0.0) -> Verdict:
        """Let a worker decide."""
        full = any(map(is_beyond, (self.gold, *self.given)))
        request = {"gold": self.gold, "given": self.given, "policy": asdict(self.policy), "full": full}
        try:
            reply = pool.ask(request, waited_s, 1 - GOLD_SHARE)
        except PoolError as problem:
            failed = Verdict(Status.VERIFIER_FAILED, str(problem), self.extracted)
            return self._blamed(pool, str(problem)) if problem.is_deserved else failed
        if "same" in reply:
            return _verdict(reply["same"], self.extracted)
        if reply["error"] == "gold":
            return Verdict(Status.GOLD_INVALID, "the gold has no value", self.extracted)
        return self._blamed(pool, str(reply.get("reason")))

    def _blamed(self, pool: Pool, reason: str) -> Verdict:
        """Return incorrect for an answer that cannot be decided, unless the gold itself has no value."""
        try:
            alone = {} if literal(self.gold) is not None else _alone(self.gold, pool)
        except PoolError as problem:
            return Verdict(Status.VERIFIER_FAILED, str(problem), self.extracted)
        if alone.get("error") == "gold":
            return Verdict(Status.GOLD_INVALID, "the gold has no value", self.extracted)
        return Verdict(Status.INCORRECT, f"the answer cannot be computed: {reason}", self.extracted)


def _alone(gold: str, pool: Pool) -> dict[str, Any]:
    """Return a worker's reply about the gold alone; {} if it exceeds the limits."""
    try:
        return pool.ask({"gold": gold, "alone": True, "full": is_beyond(gold)}, share=GOLD_SHARE)
    except PoolError as problem:
        if not problem.is_deserved:
            raise
        return {}


def _graded(response: str, gold: str, policy: Policy) -> Verdict | _Open:
    if not isinstance(response, str):
        raise TypeError(f"verify() needs a response of type str, not {type(response).__name__}")
    target = _gold(gold)
    if target.invalid:
        return Verdict(Status.GOLD_INVALID, target.invalid)
    found = from_response(response, policy)
    if found is None or not found.text.strip():
        return _NO_ANSWER
    if found.conflict:
        return Verdict(Status.INCORRECT, "the boxes differ", found.text)
    if len(found.text) > MAX_ANSWER_CHARS:
        reason = f"the answer is not valid: longer than {MAX_ANSWER_CHARS} characters"
        return Verdict(Status.INCORRECT, reason, found.text[:MAX_ANSWER_CHARS])
    value = literal(found.text) if target.number is not None and not _is_computed(found.text, policy) else None
    if value is not None and target.number is not None:
        return _verdict(close(target.number, value, policy.rounding), found.text)
    if len(found.text) > MAX_READ_CHARS:
        return _unread(target, found, policy)
    try:
        return _compared(target, found, policy) if squeeze(found.text) else _NO_ANSWER
    except LimitError as problem:
        return Verdict(Status.INCORRECT, f"the answer is not valid: {problem}", found.text)


def _unread(target: _Gold, found: Extraction, policy: Policy) -> Verdict | _Open:
    """Decide about a long answer, which only a worker may parse; it is never the plain number of form `value`."""
    if policy.form == "value" and target.number is not None:
        return _verdict(False, found.text)
    if found.text == target.text:
        return _verdict(True, found.text)
    return _Open(target.text, (found.text,), policy, found.text)


def _compared(target: _Gold, found: Extraction, policy: Policy) -> Verdict | _Open:
    given = _candidates(found.text, target, policy)
    comparison, undecided = Comparison(Quick(), policy), False
    for text in given:
        for answer in readings(text):
            if policy.form == "value" and target.number is not None and not _is_plain(answer):
                continue
            for wanted in target.answers:
                try:
                    if comparison.same(wanted, answer):
                        return _verdict(True, found.text)
                except UndecidedError:
                    undecided = True
                except GoldUndefinedError:
                    return Verdict(Status.GOLD_INVALID, "the gold has no value", found.text)
    if any(squeeze(text) == squeeze(target.text) for text in given):
        return _verdict(True, found.text)
    return _Open(target.text, tuple(given), policy, found.text) if undecided else _verdict(False, found.text)


def _candidates(text: str, target: _Gold, policy: Policy) -> list[str]:
    """Return the text and, for a labelled choice such as `(C) 12`, its label and content, or for `5m` its number."""
    if decimal := _with_point(text.strip(" $")):
        return [text, decimal]
    number = bare_number(text) if target.number is not None and policy.units != "required" else None
    label = unlabelled(text) if len(text) < 500 else None
    wanted = unlabelled(target.text) if label and len(target.text) < 500 else None
    if label and not is_choice(label[1]) and (wanted is None or wanted[0] == label[0]):
        return [text, f"({label[0]})", label[1]]
    return [text, number] if number else [text]


def _with_point(text: str) -> str | None:
    """Return 2.74 for `2,74` and 0.111 for `0,111`; None for `1,2`, two numbers, and `1,234`, grouped digits."""
    whole, _, decimals = text.partition(",")
    digits = whole.removeprefix("-")
    if not (text.isascii() and digits.isdigit() and len(digits) <= 12 and decimals.isdigit() and len(decimals) > 1):
        return None
    return f"{whole}.{decimals}" if digits == "0" or len(decimals) != 3 else None


def _is_computed(text: str, policy: Policy) -> bool:
    """Return whether a text such as 30/2 may need computation although the policy requires a plain number."""
    return policy.form == "value" and ("/" in text or "frac" in text)


def _is_plain(answer: Answer) -> bool:
    if isinstance(answer, Relation):
        return _is_plain(answer.sides[-1])
    if not isinstance(answer, Scalar) or not is_value(answer.node):
        return False
    value = small(answer.node)
    is_quotient = "/" in answer.text or "frac" in answer.text
    return not (is_quotient and isinstance(value, Fraction) and value.denominator == 1)


def _verdict(same: bool, extracted: str) -> Verdict:
    return Verdict(Status.CORRECT if same else Status.INCORRECT, "" if same else "differs from the gold", extracted)


@lru_cache(maxsize=8192)
def _gold(gold: str) -> _Gold:
    if not isinstance(gold, str):
        return _Gold("", invalid=f"the gold is {type(gold).__name__}, not text")
    text = from_gold(gold)
    if text is None or not text.strip():
        return _Gold("", invalid="the gold contains no answer")
    if len(text) > MAX_ANSWER_CHARS:
        return _Gold("", invalid=f"the gold is longer than {MAX_ANSWER_CHARS} characters")
    number = literal(text)
    if number is not None:
        return _Gold(text, number, _read_gold(text))
    return _checked(text)


def _read_gold(text: str) -> tuple[Answer, ...]:
    label = unlabelled(text)
    extra = readings(f"({label[0]})") + readings(label[1]) if label else ()
    return readings(text) + extra


def _checked(text: str) -> _Gold:
    cleaned = clean(text)
    if not is_balanced(cleaned):
        return _Gold(text, invalid="the braces of the gold do not match")
    is_empty_set = "".join(cleaned.split()) == r"\{\}"
    if not is_empty_set and not any(char.isalnum() for char in cleaned.replace("\\ldots", "")):
        return _Gold(text, invalid="the gold contains no answer")
    if cleaned.casefold() == "nan":
        return _Gold(text, invalid="the gold is not a number")
    try:
        answers = _read_gold(text)
    except LimitError as problem:
        return _Gold(text, invalid=f"the gold is not a valid answer: {problem}")
    if any(map(_is_undefined, answers)):
        return _Gold(text, invalid="the gold has no value")
    if is_broken(cleaned) and any(map(_has_opaque, answers)) and not is_beyond(text) and not unlabelled(text):
        return _Gold(text, invalid="the gold cannot be read")
    return _Gold(text, None, answers)


def _has_opaque(answer: Answer) -> bool:
    return isinstance(answer, Opaque) or (isinstance(answer, Items) and any(map(_has_opaque, answer.members)))


def _is_undefined(answer: Answer) -> bool:
    """Return whether any part of a gold certainly has no value."""
    if not isinstance(answer, Scalar):
        return any(map(_is_undefined, parts(answer)))
    return not infinity(answer.node) and _has_no_value(answer.node)


def _has_no_value(node: Node) -> bool:
    """Return whether a tree computes with infinity, divides by zero or takes the logarithm of zero."""
    if node.op == "inf" or isinstance(small(node), UndefinedError):
        return True
    divisor = node.args[:1] if node.op in ("ln", "log") else node.args[1:] if node.op == "div" else ()
    return any(small(arg) == 0 for arg in divisor) or any(map(_has_no_value, node.args))
