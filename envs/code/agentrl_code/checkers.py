"""The process in which checkers run, one call after the other, until its stdin closes.

A checker may hang without ever releasing the interpreter lock: `Fraction("1e99999999")`, a backtracking pattern. In a
separate process that blocks nothing, and the parent kills it.
"""

import ctypes
import json
import os
import pickle
import resource
import signal
from collections.abc import Iterator
from typing import Any

from agentrl_code.replies import ForeignError, foreign
from agentrl_code.show import shown
from agentrl_code.values import from_tree

LENGTH_BYTES = 8
"""A request is preceded by its length; a reply is a line of JSON."""
MOST_MESSAGE = 1000
"""Maximum characters of a checker's error message."""
MEMORY_BYTES = 4 << 30
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
CheckerReply = tuple[str, Any]
"""First `loaded`; then `returned` (whether True), `foreign` (an object that is not compared) or `raised`."""


def main() -> None:
    """Serve requests from the original stdin on the original stdout, so that a checker may print freely."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    _limit_memory()
    requests, lines = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    while length := requests.read(LENGTH_BYTES):
        for reply in replies(requests.read(int.from_bytes(length, "big"))):
            print(json.dumps(reply), file=lines, flush=True)


def _limit_memory() -> None:
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def replies(request: bytes) -> Iterator[CheckerReply]:
    """Yield the replies to a request: a checker, the input, the answer's tree in a tuple, and the expectation.

    With an empty tuple the expectation serves as the answer. All are copies, because a checker may sort or empty them.
    """
    try:
        checker, args, tree, expected = pickle.loads(request)
        got = from_tree(tree[0], foreign) if tree else pickle.loads(request)[3]
        yield "loaded", None
        yield "returned", checker(args, got, expected) is True
    except ForeignError as problem:
        yield "foreign", str(problem)
    except BaseException as problem:  # noqa: BLE001  (code of the task, on an answer of the program)
        yield "raised", f"{type(problem).__name__}: {_message(problem)}"[:MOST_MESSAGE]


def _message(problem: BaseException) -> str:
    """Return the error's message without calling its `str`, which may call the `repr` of an answer."""
    return ", ".join(arg if isinstance(arg, str) else shown(arg) for arg in problem.args)
