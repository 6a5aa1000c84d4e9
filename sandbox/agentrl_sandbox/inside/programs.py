"""Work of the confined child: run a program, execute a command, serve a session, or handle files."""

from __future__ import annotations

import _io
import builtins
import gc
import os
import sys

from agentrl_sandbox.inside import files
from agentrl_sandbox.inside.child import Cell, enter
from agentrl_sandbox.inside.kernel import default_signals
from agentrl_sandbox.inside.wire import MAX_BYTES

NAME = "<program>"
ONLY_AST = 0x400
WRITERS = (_io.TextIOWrapper, _io.BufferedWriter, _io.BufferedRandom)
NOT_EXECUTABLE, NOT_FOUND = 126, 127


def perform(verb: bytes, args: list[bytes], cell: Cell) -> int:
    """Carry out an order and return its exit code. A leading `clean` removes the files of earlier programs first."""
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
    """Replace this process by a command; return an exit code only if that fails."""
    default_signals()
    try:
        os.execvp(args[0], args)
    except (OSError, ValueError) as error:
        os.write(2, os.fsencode(f"{os.fsdecode(args[0][:200])}: {error}\n"))
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


def _python(source: bytes, args: list[str]) -> int:
    """Run source as `python -I -S` would, but with a fixed hash seed."""
    gc.freeze()  # `_flush_files` then sees only objects of the program
    names = _main_module()
    names["__file__"] = NAME
    sys.argv = [NAME, *args]
    return _ending(lambda: exec(compile(source, NAME, "exec", dont_inherit=True), names), names)  # noqa: S102


def _session() -> int:
    """Run one source after another in one namespace: fd 3 delivers length and source, fd 4 takes the exit code."""
    names = _main_module()
    sys.argv = [NAME]
    while length := _exactly(3, 4):
        source = _exactly(3, int.from_bytes(length, "big"))
        code = _outcome(lambda source=source: _run_cell(source, names))
        _flush()
        os.write(4, bytes([code]))
    return 0


def _run_cell(source: bytes, names: dict[str, object]) -> None:
    """Execute source; like a notebook, print the value of a last expression."""
    tree = compile(source, NAME, "exec", ONLY_AST, dont_inherit=True)
    last = tree.body.pop() if tree.body and type(tree.body[-1]).__name__ == "Expr" else None
    exec(compile(tree, NAME, "exec", dont_inherit=True), names)  # noqa: S102
    if last is not None:
        import _ast

        exec(compile(_ast.Interactive(body=[last]), NAME, "single", dont_inherit=True), names)  # noqa: S102


def _main_module() -> dict[str, object]:
    """Return a fresh `__main__` with standard streams, and remove the warden's modules."""
    for name in [name for name in sys.modules if name.startswith("agentrl_sandbox")]:
        del sys.modules[name]
    # Small buffers: a process that the program forks must not print its buffer again.
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # type: ignore[misc]
    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    sys.path.insert(0, os.getcwd())
    if "PYTHONPATH" in os.environ:  # the sandbox's packages, after the standard library
        sys.path.append(os.environ["PYTHONPATH"])
    builtins.exit = builtins.quit = sys.exit  # type: ignore[assignment]
    return main.__dict__


def _ending(body, names: dict[str, object]) -> int:  # type: ignore[no-untyped-def]  # no typing is loaded here
    """Run the program and the steps of an interpreter's shutdown; return its exit code."""
    code = _outcome(body)
    code = code if _finish() else 120
    _forget(names)
    _flush()
    _flush_files()
    return code


def _outcome(body) -> int:  # type: ignore[no-untyped-def]
    """Return 0, the code of a SystemExit, or 1 after printing another exception."""
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
    """Print the traceback without our own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != NAME:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _finish() -> bool:
    """Wait for threads, run exit handlers, flush; return False if the last output could not be written."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    return _flush()


def _forget(names: dict[str, object]) -> None:
    """Drop the program's objects, which flushes files and calls `__del__`, unless threads still need them."""
    if "threading" in sys.modules and sys.modules["threading"].active_count() > 1:
        return
    for name in [name for name in names if name != "__builtins__"]:
        names[name] = None
    _flush_files()  # collection may close a text file's buffer before the text file
    gc.collect()
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__


def _flush_files() -> None:
    """Flush files that are still open: those of modules, classes and running threads."""
    try:
        files = [each for each in gc.get_objects() if issubclass(type(each), WRITERS)]
    except MemoryError:
        return
    for kind in WRITERS:  # text files flush into their buffers first
        for file in files:
            try:
                if issubclass(type(file), kind) and not kind.closed.__get__(file):
                    kind.flush(file)
            except (OSError, ValueError, AttributeError, TypeError):
                pass


def _flush() -> bool:
    """Flush the open standard streams; return False if one fails."""
    is_whole = True
    for stream in (getattr(sys, "stdout", None), getattr(sys, "stderr", None)):
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except (OSError, ValueError, AttributeError, TypeError):
            is_whole = False
    return is_whole


def _exactly(fd: int, count: int) -> bytes:
    """Read `count` bytes from a pipe, or fewer at its end."""
    found = bytearray()
    while len(found) < min(count, MAX_BYTES) and (part := os.read(fd, count - len(found))):
        found += part
    return bytes(found)
