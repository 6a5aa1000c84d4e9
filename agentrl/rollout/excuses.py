"""Refused calls of an episode's agent: an agent that raises because of one is not at fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from agentrl.errors import RoleError, catch
from agentrl.serving import RequestError
from agentrl.types import StopReason


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """A call that a limit of the episode refused."""

    limit: StopReason


Excuse: TypeAlias = Refusal | RoleError


@dataclass(slots=True)
class Excuses:
    """Why calls were refused: limits of the episode, and roles that failed."""

    last: Excuse | None = None
    """That of the last refused call, if no call has succeeded since."""
    _by_text: dict[str, Excuse] = field(default_factory=dict)

    def add(self, error: RequestError, excuse: Excuse) -> None:
        """Note why a call is refused, and the error that its client gets."""
        self.last = self._by_text[str(error)] = excuse

    def drop(self, excuse: Excuse | None) -> None:
        """Forget the last one before a call that has succeeded, unless another call has been refused since."""
        if self.last is excuse:
            self.last = None

    def of(self, error: BaseException) -> Excuse | None:
        """Return the refusal that led to what an agent raised; for an error that does not say it, the last one."""
        texts = [_text_of(one) for one in _causes(error)]
        named = (excuse for text, excuse in self._by_text.items() if text and any(text in one for one in texts))
        return next(named, self.last)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that led to it."""
    seen, left = set[int](), [error]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            grouped = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            left += [other for other in (one.__cause__, one.__context__, *grouped) if other is not None]


def _text_of(error: BaseException) -> str:
    """Return what an error says, with the body of the response that the error of an HTTP client has."""
    said = catch(lambda: f"{error} {getattr(getattr(error, 'response', None), 'text', '')}")
    return "" if said.error else str(said.value)
