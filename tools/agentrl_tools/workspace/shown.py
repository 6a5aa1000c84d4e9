"""What a model reads of a run: its output, cut in the middle, and in brackets how it ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentrl_sandbox import ExecResult, Limits

MIB = 1 << 20


def shown(result: ExecResult, limits: Limits, most: int, is_session: bool, is_sandbox_lost: bool) -> str:
    """Stdout, stderr, and what else there is to know."""
    text = "\n".join(part for part in (written(result.stdout), written(result.stderr)) if part)
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
    return "\n".join(part for part in (cut(text, most), ending) if part) or "[no output]"


def written(data: bytes) -> str:
    """Bytes as text, whatever they are, without the last line's end."""
    return data.decode(errors="replace").removesuffix("\n")


def cut(text: str, most: int) -> str:
    """The head and the tail of a text of more than `most` characters."""
    if len(text) <= most:
        return text
    head, tail = text[: most // 2], text[len(text) - (most - most // 2) :]
    return f"{head}\n[{len(text) - most} characters are not shown]\n{tail}"


def _endings(result: ExecResult, limits: Limits) -> Iterator[str]:
    """The limits that were hit, in words."""
    said = {
        "time": f"stopped after {limits.wall_s:g} s",
        "cpu": f"stopped after {limits.cpu_s:g} s of processor time",
        "memory": f"out of memory, the limit is {limits.memory_bytes / MIB:g} MiB",
        "output": f"stopped: it wrote more than {limits.output_bytes / MIB:g} MiB",
        "processes": f"at most {limits.processes} processes may run",
        "disk": f"the disk is full, it has {limits.disk_bytes / MIB:g} MiB",
    }
    yield from (words for limit, words in said.items() if limit in result.hits)


def _exit_note(result: ExecResult, is_session: bool) -> str:
    """The exit code, unless a traceback says enough."""
    is_told = is_session and result.exit_code == 1 and result.stderr
    return f"exit code {result.exit_code}" if result.exit_code and not is_told else ""
