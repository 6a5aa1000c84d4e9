"""The worker process: one request at a time, under limits, with evaluation of text disabled."""

import json
import resource
import signal
import socket
import sys
from typing import Any

from agentrl_math.answer import readings
from agentrl_math.compare import Comparison
from agentrl_math.judge import GoldUndefinedError, UndecidedError
from agentrl_math.latex import squeeze
from agentrl_math.limits import MEMORY_BYTES, LimitError
from agentrl_math.policy import Policy
from agentrl_math.settled import settled

CPU_SLACK_S = 20
_MESSAGE_BYTES = 1 << 18
_REFUSED = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.", "socket.connect", "ctypes.",
            "os.remove", "os.rename", "os.mkdir", "shutil.", "pty.")  # fmt: skip


class Refused(BaseException):
    """Code in this process tried to evaluate text or to access the outside."""


def serve(channel: socket.socket) -> None:
    """Answer requests until the other end closes."""
    _limit()
    from agentrl_math.numeric import Numeric

    judge = Numeric()
    sys.dont_write_bytecode = True
    sys.addaudithook(_guard)
    while message := channel.recv(_MESSAGE_BYTES):
        _limit_cpu()
        channel.send(json.dumps(_answer(json.loads(message), judge)).encode())


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def _limit_cpu() -> None:
    """Limit the CPU time, which ends a worker whose parent is gone; otherwise the parent kills it earlier."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU_SLACK_S, hard))


def _guard(event: str, args: tuple[Any, ...]) -> None:
    if event.startswith(_REFUSED):
        raise Refused(event)
    if event == "compile" and str(args[1]).startswith("<"):
        raise Refused("attempt to evaluate text")
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        raise Refused("attempt to write a file")


def _answer(request: dict[str, Any], judge: Any) -> dict[str, Any]:
    """Return the reply: `same`, `settled` or an `error`. The only place that catches everything."""
    try:
        if request.get("alone"):
            return {"settled": all(settled(gold, judge) for gold in readings(request["gold"]))}
        return {"same": _is_same(request, Comparison(judge, Policy(**request["policy"])))}
    except GoldUndefinedError:
        return {"error": "gold"}
    except (UndecidedError, LimitError) as problem:
        return {"error": "undecided", "reason": str(problem)}
    except Refused:
        return {"error": "undecided", "reason": "attempt to evaluate text"}
    except Exception as problem:  # noqa: BLE001  (the boundary)
        return {"error": "failed", "reason": f"{type(problem).__name__}: {problem}"[:500]}


def _is_same(request: dict[str, Any], comparison: Comparison) -> bool:
    """Return whether any reading of any candidate is the gold; raise UndecidedError only if none is."""
    undecided: UndecidedError | None = None
    for gold in readings(request["gold"]):
        for text in request["given"]:
            for given in readings(text):
                try:
                    if comparison.same(gold, given):
                        return True
                except UndecidedError as problem:
                    undecided = problem
    if any(squeeze(text) == squeeze(request["gold"]) for text in request["given"]):
        return True
    if undecided:
        raise undecided
    return False
