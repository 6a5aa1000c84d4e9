"""Runs code that nobody trusts: programs, commands and stateful sessions, with limits, and nothing left behind.

    async with Pool() as pool, pool.lease() as sandbox:
        result = await sandbox.exec(Python("print(6 * 7)"))

Programs have the standard library, and the packages that are named: Pool(packages=("numpy", "sympy")).

Covered by `bubblewrap` and `docker`; each line has a test in tests/sandbox:
- fork bombs end at the limit of processes, and with the run;
- memory is limited for all processes together, and a program that fills it does not take the sandbox along;
- files are limited for all of /tmp together, and the system is read-only;
- output ends the run at its limit, whoever writes it;
- endless loops end at the wall and CPU limits, whatever signals they swallow;
- of the packages installed here they see those that they were lent, and change none;
- files, processes, environment and network of the host and of other sandboxes cannot be seen or reached, nor signalled;
- what the whole machine shares cannot be taken: terminals, buffers of sockets, asynchronous input, huge pages, locks on
  the host's files, its disks' attention; nor the limits and the priority of the warden;
- there is no way to more privileges: no capabilities, no set-uid, no user namespaces, no ptrace, no kernel interfaces;
- the warden that watches the programs cannot be signalled, read or written by them;
- a program that removes, replaces or closes its working folder, once or without end, ruins it for itself alone;
- no name, signal, trace, forged exit code, spoilt pipe or odd file ends the warden, or is taken for a limit;
- CPU time counts for all processes, waited for or not;
- links and races cannot lead `read` and `write` out of the working folder;
- nothing that a run started outlives it, whether it ended, was killed or ran out of time;
- arguments, input and output of any bytes and of any size are taken, or refused, as what they are;
- a program cannot speak in the warden's name: exit code, limits and times are the kernel's and the warden's.

Covered by no backend: bugs of the kernel (docker with gVisor's runtime comes closest), side channels of shared
hardware, the bandwidth of disks and memory, what everyone may know of the machine (its kernel, CPUs, memory, mount
table), the number of files beyond what memory limits. A session's exit code is the interpreter's own word. `process`
covers limits and leftovers, no more. Without control groups (no root, nothing delegated) memory is limited for each
process, not for their sum, hits of memory and processes are not told, no share of the CPU is enforced, and of children
that nobody waits for only the CPU time is known that was seen four times a second: see `Backend.describe()`.
"""

from agentrl_sandbox.blame import retry
from agentrl_sandbox.choice import NAMES, choose, describe
from agentrl_sandbox.errors import (
    BrokenError,
    ClosedError,
    FullError,
    LostError,
    PackagesError,
    RefusedError,
    SandboxError,
    UnavailableError,
)
from agentrl_sandbox.pool import Count, Pool
from agentrl_sandbox.types import (
    Backend,
    Command,
    ExecResult,
    Limit,
    Limits,
    OnOutput,
    Program,
    Python,
    Sandbox,
    Snapshot,
    Stream,
    shell,
)

__all__ = [
    "NAMES",
    "Backend",
    "BrokenError",
    "ClosedError",
    "Command",
    "Count",
    "ExecResult",
    "FullError",
    "Limit",
    "Limits",
    "LostError",
    "OnOutput",
    "PackagesError",
    "Pool",
    "Program",
    "Python",
    "RefusedError",
    "Sandbox",
    "SandboxError",
    "Snapshot",
    "Stream",
    "UnavailableError",
    "choose",
    "describe",
    "retry",
    "shell",
]
