"""Refused calls of an episode's agent: an agent that raises because of one is not at fault."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from agentrl.errors import RoleError, catch
from agentrl.serving import RequestError
from agentrl.types import StopReason


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """A call that a limit of the episode refused, or whose answer it cut."""

    limit: StopReason


Excuse: TypeAlias = Refusal | RoleError
HANDLING = "During handling of the above exception, another exception occurred:"
"""What a traceback has between two errors, of which the second was not raised from the first."""


@dataclass(slots=True)
class Excuses:
    """Why calls were refused: limits of the episode, and roles that failed."""

    last: Excuse | None = None
    """That of the last refused call, if no call has succeeded since."""
    _by_text: dict[str, Excuse] = field(default_factory=dict)

    def add(self, error: RequestError, excuse: Excuse) -> None:
        """Note why a call is refused, and the error that its client gets."""
        text = str(error)
        self._by_text.pop(text, None)  # the last one is that of the last call
        self.last = self._by_text[text] = excuse

    def drop(self, excuse: Excuse | None) -> None:
        """Forget the last one before a call that has succeeded, unless another call has been refused since."""
        if self.last is excuse:
            self.last = None

    def of(self, error: BaseException) -> Excuse | None:
        """Return the refusal that an agent raised; for an error that does not say one, that of the last call."""
        for said in map(_text_of, _causes(error)):
            for text, excuse in reversed(self._by_text.items()):
                if any(form in said for form in (text, json.dumps(text)[1:-1], repr(text)[1:-1])):
                    return excuse
        return self.last


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, the nearest first; not what was handled when it was raised."""
    seen, left = set[int](), deque([error])
    while left:
        one = left.popleft()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [one.__cause__] if one.__cause__ else []
            left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()


def _text_of(error: BaseException) -> str:
    """Return what an error says; a traceback from another process without the errors that were handled."""
    said = catch(str, error)
    return "" if said.error else str(said.value).rpartition(HANDLING)[2]
