"""Text that a model reads about a run: its output, truncated in the middle, and in brackets how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl_sandbox import ExecResult, Limits

MIB = 1 << 20


def shown(result: ExecResult, limits: Limits, max_characters: int, is_session: bool, is_sandbox_lost: bool) -> str:
    """Format a result for the model: stdout, stderr, limits that were hit, and the exit code."""
    text = "\n".join(part for part in (decoded(result.stdout), decoded(result.stderr)) if part)
    notes = list(_endings(result, limits))
    if not notes and (note := _exit_note(result, is_session)):
        notes.append(note)
    if is_sandbox_lost:
        notes.append("all variables and files are lost")
    elif is_session and result.is_state_lost:
        notes.append("the session and its variables are lost; files are kept")
    elif is_session and result.hits:
        notes.append("variables are kept")
    ending = f"[{'; '.join(notes)}]" if notes else ""
    return "\n".join(part for part in (cut(text, max_characters), ending) if part) or "[no output]"


def decoded(data: bytes) -> str:
    """Decode output, replacing invalid bytes and dropping the final newline."""
    return data.decode(errors="replace").removesuffix("\n")


def cut(text: str, max_characters: int) -> str:
    """Shorten a long text to its head and tail."""
    omitted = len(text) - max_characters
    if omitted <= 0:
        return text
    head = max_characters // 2
    return f"{text[:head]}\n[{omitted} characters are not shown]\n{text[head + omitted :]}"


def _endings(result: ExecResult, limits: Limits) -> Iterator[str]:
    """Yield a note for every limit that was hit."""
    notes = {
        "time": f"stopped after {limits.wall_s:g} s",
        "cpu": f"stopped after {limits.cpu_s:g} s of processor time",
        "memory": f"out of memory, the limit is {limits.memory_bytes / MIB:g} MiB",
        "output": f"stopped: it wrote more than {limits.output_bytes / MIB:g} MiB",
        "processes": f"at most {limits.processes} processes may run",
        "disk": f"the disk is full, it has {limits.disk_bytes / MIB:g} MiB",
    }
    yield from (words for limit, words in notes.items() if limit in result.hits)


def _exit_note(result: ExecResult, is_session: bool) -> str:
    """Return a note with a non-zero exit code, unless a traceback already explains it."""
    has_traceback = is_session and result.exit_code == 1 and result.stderr
    return f"exit code {result.exit_code}" if result.exit_code and not has_traceback else ""
