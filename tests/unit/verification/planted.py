"""Checks that pass, fail, hang, crash and skip; as a program, this file runs them as the script runs its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from verification.__main__ import main
from verification.catalogue import CHECKS
from verification.check import BoundError, Check, Needs, Setting, SkipError

HERE = "tests.unit.verification.planted"
ANYWHERE = Needs(gpus=0)
LEFT = "PLANTED_LEFT"
"""The variable that names the file of a pid that a check leaves behind."""


def passing(setting: Setting) -> str:
    return f"1.5 s | {setting.device}, {setting.gpus} GPUs, {len(list(setting.folder.iterdir()))} files"


def failing(setting: Setting) -> str:
    print("what it printed")
    raise BoundError("the error is 2,\nallowed 1\n" + "and more " * 200)


def hanging(setting: Setting) -> str:
    """Hangs, and so does a process in a session of its own that ignores the end of its parent."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    Path(os.environ[LEFT]).write_text(str(sleeper.pid))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(600)


def crashing(setting: Setting) -> str:
    print("out of luck", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""


def exiting(setting: Setting) -> str:
    os._exit(3)


def skipping(setting: Setting) -> str:
    raise SkipError("this PyTorch lacks it")


def lacking(setting: Setting) -> str:
    import a_package_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401

    return ""


def outdated(setting: Setting) -> str:
    import json.a_module_that_json_lacks  # type: ignore[import-not-found]  # noqa: F401

    return ""


def planted(name: str, needs: Needs = ANYWHERE, deadline_s: float = 30.0) -> Check:
    return Check(name, f"{HERE}:{name}", f"proves {name}", needs, deadline_s)


PLANTED = (
    planted("hanging", deadline_s=3.0),
    planted("crashing"),
    planted("exiting"),
    planted("failing"),
    planted("skipping"),
    planted("lacking"),
    planted("outdated"),
    planted("passing"),
)

if __name__ == "__main__":
    raise SystemExit(
        main(CHECKS if "--all" in sys.argv else PLANTED, [word for word in sys.argv[1:] if word != "--all"])
    )
