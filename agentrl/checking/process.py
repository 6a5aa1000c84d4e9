"""The process in which checks run, so that an environment may end it.

`python -m agentrl.checking.process DESCRIPTOR REQUEST` writes records to the descriptor, the last of which is Done.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec

from agentrl.checking.catalogue import CHECKS
from agentrl.checking.check import Status, Subject
from agentrl.checking.running import run_checks
from agentrl.errors import ConfigError
from agentrl.types import Trajectory, as_unicode

BY_NAME = {check.name: check for check in CHECKS}


@dataclass(frozen=True)
class Request:
    """What to check: an environment with its options, and the names of the checks."""

    name: str
    options: Mapping[str, Any]
    checks: Sequence[str]
    is_clean: bool = False
    episodes: str = ""
    """Folder of a model's samples of training tasks, for the level learnability."""


class Started(msgspec.Struct, frozen=True, tag=True):
    """A check begins and takes at most so many seconds."""

    limit_s: float


class Estimated(msgspec.Struct, frozen=True, tag=True):
    """About how long the checks take, as a sentence, if that is long."""

    text: str


class Finished(msgspec.Struct, frozen=True, tag=True):
    """Result of that check."""

    status: Status
    text: str
    seconds: float
    remedy: str = ""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The message of a ConfigError: there is nothing to check."""

    text: str


class Done(msgspec.Struct, frozen=True, tag=True):
    """Every check has a result."""


Record = Started | Estimated | Finished | Refused | Done


def main() -> None:
    """Run the checks of the request."""
    descriptor, request = int(sys.argv[1]), Request(**json.loads(sys.argv[2]))
    os.set_inheritable(descriptor, False)
    faulthandler.enable()
    # The command ends a process that hangs by SIGABRT. Sandboxes need the hard limit.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    Thread(target=_end_with_reader, args=(descriptor,), daemon=True).start()
    with os.fdopen(descriptor, "wb", buffering=0) as records:
        _answer(request, lambda record: records.write(msgspec.json.encode(record) + b"\n"))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # threads that still wait are not worth a traceback


def _answer(request: Request, write: Callable[[Record], object]) -> None:
    try:
        subject = _subject(request)
    except ConfigError as error:
        write(Refused(as_unicode(str(error))))
        return

    def started(limit_s: float) -> None:
        write(Started(limit_s))

    def estimated(text: str) -> None:
        write(Estimated(text))

    for result in run_checks(subject, [BY_NAME[name] for name in request.checks], started, estimated):
        write(Finished(result.status, as_unicode(result.text), result.seconds, result.remedy))
    write(Done())


def _subject(request: Request) -> Subject:
    named = Subject.named(request.name, request.options)
    episodes = _episodes(Path(request.episodes)) if request.episodes else ()
    return Subject(named.name, named.env_class, named.options, request.is_clean, episodes)


def _episodes(folder: Path) -> tuple[Trajectory, ...]:
    from agentrl.records.store import scan  # other interpreters lack what it needs

    return tuple(scan(folder))


def _end_with_reader(descriptor: int) -> None:
    """End this process with the command that reads its records."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(1)


if __name__ == "__main__":
    main()
