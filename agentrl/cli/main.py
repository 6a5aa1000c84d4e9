"""`agentrl COMMAND`: finds the command, runs it, and turns errors into one clear message."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from agentrl import __version__
from agentrl.errors import AgentRLError, UnknownNameError

COMMANDS = {
    "train": "train a model in an environment",
    "eval": "score a model on an environment's held-out tasks",
    "resume": "continue a run that was stopped or killed",
    "replay": "train a run's trajectories again and compare the weights",
    "show": "look at a run's trajectories",
    "diff": "compare the answers of two evaluations to the same tasks",
    "export": "write a run's trajectories as JSON lines or Parquet",
    "env": "list, show, check and package environments",
    "serve-rm": "serve a reward model over HTTP",
    "config": "print every setting: value, source and meaning",
    "plan": "compute memory and seconds of a run, or simulate a recorded one, on any hardware",
    "doctor": "check this machine and say how to install what is missing",
    "gc": "remove what killed runs left on this machine or cluster",
}
HELP = """\
usage: agentrl COMMAND [options]

{commands}

Run `agentrl COMMAND --help` for its options.
--debug after any command shows the traceback of an error; --version prints the version.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command. Returns 0 for success, 2 for an error of agentrl, 130 after Ctrl-C, 143 after SIGTERM."""
    words = list(sys.argv[1:] if argv is None else argv)
    is_debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        with _interrupted_by_sigterm():
            return _run(words)
    except AgentRLError as error:
        if is_debug:
            raise
        print(_red(f"error: {error}{_notes(error)}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        name = str(stopped) or "SIGINT"
        print(f"stopped by {name}{_notes(stopped)}", file=sys.stderr)
        return 128 + signal.Signals[name]
    except BrokenPipeError:
        # The reader of the output (`| head`) is gone; keep the interpreter from complaining when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM interrupts the command as Ctrl-C does, until a run installs its own handlers."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(words: list[str]) -> int:
    command = words[0] if words else "--help"
    if command in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<8} {what}" for name, what in COMMANDS.items())), end="")
        return 0
    if command == "--version":
        print(__version__)
        return 0
    if command not in COMMANDS:
        raise UnknownNameError("command", command, COMMANDS)
    status: int = import_module(f"agentrl.cli.{command.replace('-', '_')}").run(words[1:])
    return status


def _notes(error: BaseException) -> str:
    """Return what failed after `error`, one line each."""
    return "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))


def _red(text: str) -> str:
    is_plain = not sys.stderr.isatty() or "NO_COLOR" in os.environ
    return text if is_plain else f"\x1b[31m{text}\x1b[0m"
