"""The process in which checkers run: one call after the other, until the other end closes.

A checker may hang over an answer without ever giving up the interpreter: `Fraction("1e99999999")`, a pattern that
backtracks. Here that holds up nobody, and who asked kills the process.
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
"""Before each request, its length; a reply is a line of JSON."""
MOST_WORDS = 1000
"""Characters of what a checker says when it raises."""
MEMORY_BYTES = 4 << 30
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
Told = tuple[str, Any]
"""`loaded` first; then `said` whether it is True, `foreign` for an object that is not compared, or what it `raised`."""


def main() -> None:
    """Serve requests from what was stdin on what was stdout; a checker may print where it likes."""
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


def replies(request: bytes) -> Iterator[Told]:
    """Those to one request: a checker, the input, the answer's tree in a tuple, and what is expected.

    An empty tuple tries what is expected as the answer. Everything is a copy: a checker may sort or empty it.
    """
    try:
        checker, given, tree, expected = pickle.loads(request)
        got = from_tree(tree[0], foreign) if tree else pickle.loads(request)[3]
        yield "loaded", None
        yield "said", checker(given, got, expected) is True
    except ForeignError as problem:
        yield "foreign", str(problem)
    except BaseException as problem:  # noqa: BLE001  (code of the task, on an answer of the program)
        yield "raised", f"{type(problem).__name__}: {_words(problem)}"[:MOST_WORDS]


def _words(problem: BaseException) -> str:
    """What it says; not by its `str`, which is a `repr` of what it was raised with: perhaps the answer."""
    return ", ".join(arg if isinstance(arg, str) else shown(arg) for arg in problem.args)
