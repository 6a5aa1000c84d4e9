"""Why vLLM could not start is found in what its processes print."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrl.engine.vllm.printed import Printed, points_elsewhere

OLD = "ValueError: of an engine before\n"
LOGGED = """(EngineCore pid=9477) WARNING 11-29 19:34:09 [config.py:10] ImportError: that was survived
(EngineCore pid=9477) ERROR 11-29 19:34:11 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=9477) ERROR 11-29 19:34:11 [core.py:1510]     from torchvision import transforms
(EngineCore pid=9477) ERROR 11-29 19:34:11 [core.py:1510] ModuleNotFoundError: No module named 'torchvision'
"""
OTHER = "(Worker_TP1 pid=9) ERROR 11-29 19:34:12 [x.py:1] torch.distributed.DistBackendError: remote process exited\n"
RAISED = """\rLoading weights: 100%|####| 20/20\r
  File "core.py", line 1514, in run_engine_core
    raise e
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
[rank0]:[W1129] Warning: destroy_process_group() was not called: see the manual
"""
AT_EXIT = """Exception ignored in: <function X.__del__ at 0x7f>
Traceback (most recent call last):
AttributeError: 'X' object has no attribute '_h'
"""
MISSING, MEMORY = (
    "ModuleNotFoundError: No module named 'torchvision'",
    "torch.OutOfMemoryError: CUDA out of memory. Tried",
)


def printed(file: Path, text: bytes) -> str:
    file.write_text(OLD)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
    try:
        watched = Printed(descriptor)
        os.write(descriptor, text)
        return watched.first_error()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOGGED, MISSING),
        (LOGGED + OTHER + RAISED + AT_EXIT, MISSING),
        (RAISED + AT_EXIT, MEMORY),
        ("Traceback (most recent call last):\nAssertionError\n", "AssertionError"),
        ("no error: nothing\nAn Error: neither\n", ""),
        ("", ""),
    ],
)
def test_the_error_is_that_of_the_process_that_failed_first(tmp_path: Path, text: str, said: str) -> None:
    assert printed(tmp_path / "stderr", b"\xff\n" + text.encode()).startswith(said)
    assert bool(printed(tmp_path / "stderr", text.encode())) == bool(said)


def test_a_pipe_cannot_be_read_again_and_nothing_of_a_closed_file_is_known() -> None:
    reader, writer = os.pipe()
    watched = Printed(writer)
    os.write(writer, LOGGED.encode())
    assert watched.first_error() == ""
    os.close(reader)
    os.close(writer)
    assert Printed(writer).first_error() == ""


def test_only_an_error_that_points_elsewhere_is_replaced() -> None:
    assert points_elsewhere(RuntimeError("Engine core initialization failed. See root cause above."))
    assert not points_elsewhere(ValueError("max_model_len (99999) is greater than 512"))
