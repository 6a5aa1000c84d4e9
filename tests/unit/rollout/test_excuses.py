"""What an agent raises is excused by the refusal that it raised, or by that of its last call; nothing else is."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from agentrl.errors import RoleError
from agentrl.rollout.excuses import HANDLING, Excuses, Refusal
from agentrl.serving import RequestError
from agentrl.types import StopReason

LONG, MANY = Refusal(StopReason.CONTEXT_OVERFLOW), Refusal(StopReason.MAX_TURNS)


def refused(text: str) -> RequestError:
    return RequestError(HTTPStatus.BAD_REQUEST, "refused", text)


def excuses(*, goes_on: bool = True) -> Excuses:
    """A call was too long, then one too many; unless `goes_on` is false, another succeeded after them."""
    found = Excuses()
    found.add(refused("too long"), LONG)
    found.add(refused("too many"), MANY)
    if goes_on:
        found.drop(found.last)
    return found


def caught(text: str, cause: BaseException | None) -> Exception:
    """An error that was raised from another."""
    try:
        raise ValueError(text) from cause
    except ValueError as error:
        return error


def handling(error: ValueError, text: str) -> Exception:
    """An error that was raised while another one was handled."""
    try:
        try:
            raise error
        except ValueError:
            raise KeyError(text)  # noqa: B904 (what is tested)
    except KeyError as raised:
        return raised


@pytest.mark.parametrize("text", ["too long", "400: {'message': 'too long'}", 'judge: it\'s\n"too long"'])
def test_a_refusal_excuses_the_error_that_says_it_and_what_is_raised_from_it(text: str) -> None:
    for error in (
        ValueError(text),
        caught("a subagent failed", ValueError(text)),
        ExceptionGroup("", [ValueError(text)]),
    ):
        assert excuses().of(error) is LONG


def test_the_nearest_refusal_excuses() -> None:
    assert excuses().of(caught("too many", ValueError("too long"))) is MANY
    assert excuses().of(caught("too long", ValueError("too many"))) is LONG


def test_of_a_text_that_was_said_twice_the_last_refusal_counts() -> None:
    found, again = excuses(), Refusal(StopReason.CONTEXT_OVERFLOW)
    found.add(refused("too long"), again)
    found.drop(again)
    assert found.of(ValueError("too long, too many")) is again


@pytest.mark.parametrize("text", ["judge: it's away", "judge: \"away\" or 'away'", "judge:\nTraceback"])
def test_a_refusal_is_known_in_the_json_and_the_repr_in_which_clients_say_it(text: str) -> None:
    found, why = Excuses(), RoleError(text)
    found.add(refused(text), why)
    found.drop(why)
    body = refused(text)
    assert found.of(ValueError(f"Error code: 502 - { ({'message': str(body)}) }")) is why


def test_a_mistake_while_a_refusal_is_handled_is_the_agents_own() -> None:
    assert excuses().of(handling(ValueError("too long"), "contnt")) is None
    traceback = f"ValueError: too long\n\n{HANDLING}\n\nKeyError: 'contnt'"
    assert excuses().of(caught("play raised KeyError", RuntimeError(traceback))) is None


def test_an_error_that_says_no_refusal_is_excused_by_that_of_the_last_call() -> None:
    assert excuses(goes_on=False).of(KeyError("choices")) is MANY
    assert excuses().of(KeyError("choices")) is None


def test_an_error_that_cannot_say_what_it_is_is_not_excused() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert excuses().of(MuteError()) is None
