"""How much a server may send for one call: counted before anything is made of it, whatever carries it."""

from __future__ import annotations

MOST_BYTES = 4 * 2**20
MOST_VALUES = 50_000
"""Each takes a microsecond of the loop and twenty times the memory of its text. A line counts as one."""
MARKS = b"[{,"


class Allowance:
    """What a server may still send until the next call."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """A call begins."""
        self.complaint = ""
        """What the server did that ends the call; '' for nothing."""
        self._bytes_left, self._values_left = MOST_BYTES, MOST_VALUES

    def take(self, size: int = 0, values: int = 0) -> bool:
        """Whether there was so much left."""
        self._bytes_left -= size
        self._values_left -= values
        if self._bytes_left < 0:
            self.complain(f"sent more than {MOST_BYTES >> 20} MiB for one call")
        elif self._values_left < 0:
            self.complain(f"sent more than {MOST_VALUES} values for one call")
        return not self.complaint

    def complain(self, what: str) -> None:
        """Say what ends the call, unless something else has."""
        self.complaint = self.complaint or what


def values_of(line: bytes) -> int:
    """How many commas and brackets that open there are in JSON beside its texts: no fewer than values within others."""
    outside = b'""'.join(line.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    return len(outside) - len(outside.translate(None, MARKS))
