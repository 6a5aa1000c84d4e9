"""Limit on what a server may send per call, enforced before parsing, for every transport."""

from __future__ import annotations

MAX_BYTES = 4 * 2**20
MAX_VALUES = 50_000
"""A JSON value costs a microsecond of the loop and twenty times the memory of its text. A line counts as one."""
MARKS = b"[{,"


class Allowance:
    """What a server may still send before the next call."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Reset the limits at the start of a call."""
        self.violation = ""
        """What the server did wrong, which ends the call; '' if nothing."""
        self._bytes_left, self._values_left = MAX_BYTES, MAX_VALUES

    def take(self, size: int = 0, values: int = 0) -> bool:
        """Subtract what was received; return False once the call has to end."""
        self._bytes_left -= size
        self._values_left -= values
        if self._bytes_left < 0:
            self.end_call(f"sent more than {MAX_BYTES >> 20} MiB for one call")
        elif self._values_left < 0:
            self.end_call(f"sent more than {MAX_VALUES} values for one call")
        return not self.violation

    def end_call(self, violation: str) -> None:
        """Record what the server did wrong; the first violation counts."""
        self.violation = self.violation or violation


def values_of(line: bytes) -> int:
    """Count commas and opening brackets outside JSON strings: an upper bound on the number of nested values."""
    outside = b'""'.join(line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    return len(outside) - len(outside.translate(None, MARKS))
