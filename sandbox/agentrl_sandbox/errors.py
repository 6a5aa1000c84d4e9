"""Errors of sandboxes. `fault` says who is at fault. A program that fails is a result, not an error.

SandboxError              the infrastructure failed, not the program (fault = "infra")
├── UnavailableError      this backend cannot run here; the message says how to fix it
│   └── PackagesError     a requested package is missing or not allowed
├── LostError             a sandbox died or did not answer in time
├── FullError             no sandbox became free before the deadline
├── ClosedError           the sandbox or the pool is closed
├── RefusedError          the request is not valid (fault = "program"): a path, a size
└── BrokenError           a program breaks every sandbox that it runs in (fault = "program"); see `blame`
"""

from __future__ import annotations

from typing import Literal


class SandboxError(RuntimeError):
    """Base class of all sandbox errors."""

    fault: Literal["program", "infra"] = "infra"


class UnavailableError(SandboxError):
    """The backend cannot run on this machine; the message says how to fix it."""


class PackagesError(UnavailableError):
    """A requested package is missing or not allowed; the message says how to fix it."""


class LostError(SandboxError):
    """The sandbox died or did not answer, and no limit explains it."""


class FullError(SandboxError):
    """No sandbox became free before the deadline."""


class ClosedError(SandboxError):
    """The sandbox or the pool is closed."""


class RefusedError(SandboxError):
    """The sandbox cannot serve this path, size or archive."""

    fault: Literal["program", "infra"] = "program"


class BrokenError(SandboxError):
    """The same actions broke two fresh sandboxes while a third one worked."""

    fault: Literal["program", "infra"] = "program"
