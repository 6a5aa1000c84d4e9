"""Runs untrusted code: programs, commands and stateful sessions, with limits and without leftovers.

    async with Pool() as pool, pool.lease() as sandbox:
        result = await sandbox.exec(Python("print(6 * 7)"))

Programs have the standard library and the packages that are named: Pool(packages=("numpy", "sympy")).

Covered by `bubblewrap` and `docker`; every line has a test in tests/sandbox:
- fork bombs stop at the process limit and end with the run;
- memory is limited for all processes together, and a program that fills it does not break the sandbox;
- disk space is limited for all of /tmp together, and the system is read-only;
- a run ends at its output limit, whichever process writes the output;
- endless loops end at the wall-clock and CPU limits, whatever signals they ignore;
- programs see only those installed packages that were named, and cannot change them;
- files, processes, environment and network of the host and of other sandboxes cannot be seen, reached or signalled;
- resources that the whole machine shares cannot be exhausted: terminals, socket buffers, asynchronous I/O, huge pages,
  locks on the host's files, disk flushes; nor can the limits and the priority of the warden be changed;
- privileges cannot be gained: no capabilities, set-uid, user namespaces, ptrace or kernel interfaces;
- programs cannot signal, read or write the warden that watches them;
- a program that removes, replaces or closes its working folder, once or repeatedly, harms only itself;
- no name, signal, trace, forged exit code, corrupt pipe or unusual file ends the warden or counts as a limit;
- CPU time counts for all processes, waited for or not;
- links and races cannot lead `read` and `write` out of the working folder;
- nothing that a run started outlives it, whether it ended, was killed or ran out of time;
- arguments, input and output may have any bytes and any size; they are accepted or rejected, never altered;
- a program cannot impersonate the warden: exit code, limits and times come from the kernel and the warden.

Covered by no backend: kernel bugs (docker with gVisor's runtime comes closest), side channels of shared hardware, the
bandwidth of disks and memory, public facts about the machine (its kernel, CPUs, memory, mount table), the number of
files beyond the memory limit. A session's exit code is reported by the interpreter itself. `process` covers only limits
and leftovers. Without control groups (no root, nothing delegated) memory is limited per process and not for their sum,
hits of memory and processes are not reported, no CPU share is enforced, and the CPU time of children that nobody waits
for is sampled four times a second: see `Backend.describe()`.
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
