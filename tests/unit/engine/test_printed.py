"""Why vLLM could not start is found in what its processes print."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrl.engine.vllm.printed import Printed

OLD = "ValueError: of an engine before\n"
LOGGED = """(EngineCore pid=9477) ERROR 11-29 19:34:11 [core.py:1510] Traceback (most recent call last):
(EngineCore pid=9477) ERROR 11-29 19:34:11 [core.py:1510]     from torchvision import transforms
(EngineCore pid=9477) ERROR 11-29 19:34:11 [core.py:1510] ModuleNotFoundError: No module named 'torchvision'
"""
RAISED = """\rLoading weights: 100%|####| 20/20\r
  File "core.py", line 1514, in run_engine_core
    raise e
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
[rank0]:[W1129] Warning: destroy_process_group() was not called: see the manual
"""


def printed(file: Path, text: str) -> str:
    file.write_text(OLD)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
    try:
        watched = Printed(descriptor)
        os.write(descriptor, text.encode())
        return watched.last_error()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LOGGED, "ModuleNotFoundError: No module named 'torchvision'"),
        (LOGGED + RAISED, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
        ("no error: nothing\nAn Error: neither\n", ""),
        ("", ""),
    ],
)
def test_the_last_error_is_that_of_the_process_that_failed(tmp_path: Path, text: str, said: str) -> None:
    assert printed(tmp_path / "stderr", text) == said


def test_a_pipe_cannot_be_read_again() -> None:
    reader, writer = os.pipe()
    try:
        watched = Printed(writer)
        os.write(writer, LOGGED.encode())
        assert watched.last_error() == ""
    finally:
        os.close(reader)
        os.close(writer)
