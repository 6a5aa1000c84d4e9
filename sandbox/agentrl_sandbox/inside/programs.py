"""What the confined child does: run a program, execute a command, serve a session, or handle files."""

from __future__ import annotations

import _io
import builtins
import gc
import os
import sys

from agentrl_sandbox.inside import files
from agentrl_sandbox.inside.child import Cell, enter
from agentrl_sandbox.inside.kernel import default_signals
from agentrl_sandbox.inside.wire import MOST_BYTES

NAME = "<program>"
ONLY_AST = 0x400
WRITERS = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom)
NOT_EXECUTABLE, NOT_FOUND = 126, 127


def perform(verb: bytes, args: list[bytes], cell: Cell) -> int:
    """Do what the order says; its exit code. `clean` stands before what is done in an empty sandbox."""
    if verb == b"clean":
        for room in cell.rooms:
            files.clear(room)
        enter(cell.work)
        verb, *args = args
    if verb == b"python":
        return _python(args[0], [os.fsdecode(arg) for arg in args[1:]])
    if verb == b"command":
        return _command(args)
    if verb == b"session":
        return _session()
    return _file(verb, args, cell.work)


def _file(verb: bytes, args: list[bytes], work: str) -> int:
    try:
        if verb == b"read":
            files.read(work, os.fsdecode(args[0]))
        elif verb == b"write":
            files.write(work, os.fsdecode(args[0]))
        elif verb == b"snapshot":
            files.snapshot(work)
        else:
            files.restore(work)
    except (OSError, ValueError, EOFError) as error:
        os.write(2, str(error).encode("utf-8", "replace"))
        return 1
    return 0


def _command(args: list[bytes]) -> int:
    """Never returns when the command exists."""
    default_signals()
    try:
        os.execvp(args[0], args)
    except (OSError, ValueError) as error:
        os.write(2, os.fsencode(f"{os.fsdecode(args[0][:200])}: {error}\n"))
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def _python(source: bytes, args: list[str]) -> int:
    """As `python -I -S` would run a file of this content, with one hash seed for all."""
    gc.freeze()  # what the end looks through is the program's alone
    names = _main_module()
    names["__file__"] = NAME
    sys.argv = [NAME, *args]
    return _ending(lambda: exec(compile(source, NAME, "exec", dont_inherit=True), names), names)  # noqa: S102


def _session() -> int:
    """Run source after source in one namespace: each comes on fd 3 after its length; fd 4 tells its exit code."""
    names = _main_module()
    sys.argv = [NAME]
    while length := _exactly(3, 4):
        source = _exactly(3, int.from_bytes(length, "big"))
        code = _outcome(lambda source=source: _run_cell(source, names))
        _flush()
        os.write(4, bytes([code]))
    return 0


def _run_cell(source: bytes, names: dict[str, object]) -> None:
    """Execute; like a notebook, show the value of a last expression."""
    tree = compile(source, NAME, "exec", ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and type(tree.body[-1]).__name__ == "Expr" else None
    exec(compile(tree, NAME, "exec", dont_inherit=True), names)  # noqa: S102
    if last is not None:
        import _ast

        exec(compile(_ast.Interactive(body=[last]), NAME, "single", dont_inherit=True), names)  # noqa: S102


def _main_module() -> dict[str, object]:
    """A fresh `__main__`, standard streams as we are given them, and nothing of the warden's among the modules."""
    for name in [name for name in sys.modules if name.startswith("agentrl_sandbox")]:
        del sys.modules[name]
    # A line at a time, as far as the program's own process goes: what it forks must not print its buffer again.
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # type: ignore[misc]
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.path.insert(0, os.getcwd())
    if "PYTHONPATH" in os.environ:  # set for the packages of the sandbox; behind the standard library
        sys.path.append(os.environ["PYTHONPATH"])
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    return main.__dict__


def _ending(body, names: dict[str, object]) -> int:  # type: ignore[no-untyped-def]  # no typing is loaded here
    """Return the exit code that an interpreter would give, after what an interpreter does at its end."""
    code = _outcome(body)
    code = code if _finish() else 120
    _forget(names)
    _flush()
    _flush_files()
    return code


def _outcome(body) -> int:  # type: ignore[no-untyped-def]
    """0, or 1 after an exception, which is shown; a SystemExit's own code."""
    try:
        body()
    except SystemExit as error:
        return _exit_code(error)
    except BaseException as error:  # noqa: BLE001 (the outermost frame of the program)
        _show(error)
        return 1
    return 0


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return int(error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def _show(error: BaseException) -> None:
    """The traceback, without our own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _finish() -> bool:
    """Wait for threads, run exit handlers, flush; False when the last output could not be written."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    return _flush()


def _forget(names: dict[str, object]) -> None:
    """Let go of what the program holds: files are flushed, `__del__` is called. Threads that go on still need it."""
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return
    for name in [name for name in names if name != "__builtins__"]:
        names[name] = None
    _flush_files()  # a collection closes a text's buffer before the text
    gc.collect()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


def _flush_files() -> None:
    """Flush what is still open: files that modules and classes hold, and those of threads that go on."""
    try:
        files = [each for each in gc.get_objects() if issubclass(type(each), WRITERS)]
    except MemoryError:
        return
    for kind in WRITERS:  # a text goes into its buffer first
        for file in files:
            try:
                if issubclass(type(file), kind) and not kind.closed.__get__(file):
                    kind.flush(file)
            except (OSError, ValueError, AttributeError, TypeError):
                pass


def _flush() -> bool:
    """Flush what is open of the standard streams; False when one cannot be."""
    is_whole = True
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except (OSError, ValueError, AttributeError, TypeError):
            is_whole = False
    return is_whole


def _exactly(fd: int, count: int) -> bytes:
    """This many bytes of a pipe; none when it has ended."""
    found = bytearray()
    while len(found) < min(count, MOST_BYTES) and (part := os.read(fd, count - len(found))):
        found += part
    return bytes(found)
