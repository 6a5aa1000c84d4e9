"""What can go wrong with a sandbox. `fault` says whose fault it is: a program's own failure is a result, not an error.

SandboxError              the infrastructure failed: the program is not to blame (fault = "infra")
├── UnavailableError      this backend cannot run here; says what to do
│   └── PackagesError     it has not, or may not lend, a package that was asked for
├── LostError             a sandbox died, or did not answer in time
├── FullError             no sandbox became free before the deadline
├── ClosedError           the sandbox or the pool was closed before
├── RefusedError          what was asked cannot be done (fault = "program"): a path, a size
└── BrokenError           a program breaks every sandbox that it runs in (fault = "program"); see `blame`
"""

from __future__ import annotations

from typing import Literal


class SandboxError(RuntimeError):
    """The root of the tree."""

    fault: Literal["program", "infra"] = "infra"


class UnavailableError(SandboxError):
    """A backend that cannot run on this machine; the message says what to do."""


class PackagesError(UnavailableError):
    """A package that was asked for is not there, or may not be lent; the message says what to do."""


class LostError(SandboxError):
    """The sandbox died, or did not answer, and no limit explains it."""


class FullError(SandboxError):
    """No sandbox became free before the deadline."""


class ClosedError(SandboxError):
    """The sandbox or the pool was closed before."""


class RefusedError(SandboxError):
    """A path, a size or an archive that cannot be served."""

    fault: Literal["program", "infra"] = "program"


class BrokenError(SandboxError):
    """The same actions broke two fresh sandboxes, while a third served."""

    fault: Literal["program", "infra"] = "program"
