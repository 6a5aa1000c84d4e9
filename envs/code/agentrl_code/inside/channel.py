"""Output channel of a sandbox: frames on the original stdout. The program's own output is discarded."""

from __future__ import annotations

import os

try:
    from _json import encode_basestring_ascii as quote
except ImportError:
    from json.encoder import py_encode_basestring_ascii as quote

TYPE_CHECKING = False  # typing is not loaded inside
if TYPE_CHECKING:
    from typing import Any


class Channel:
    """Writer of frames: the order's nonce, the payload's length in eight hex digits, and the payload."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        sink = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            os.dup2(sink, fd)
        os.close(sink)

    def say(self, nonce: bytes, payload: str) -> None:
        """Write one frame."""
        view = memoryview(b"%s%08x%s" % (nonce, len(payload), payload.encode("ascii")))
        while view:
            view = view[os.write(self._fd, view) :]


def text(tree: Any) -> str:
    """Return a tree as ASCII JSON. Importing json would take longer than most programs run."""
    if type(tree) is list:
        return f"[{','.join(map(text, tree))}]"
    if type(tree) is str:
        return quote(tree)
    if tree is None or tree is True or tree is False:
        return {None: "null", True: "true", False: "false"}[tree]
    if type(tree) is float:
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(float.__repr__(tree), float.__repr__(tree))
    return int.__repr__(tree)
