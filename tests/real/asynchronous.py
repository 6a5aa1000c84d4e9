"""An accelerator for DeepSpeed that computes on the CPU and says that it works beside the host, as a GPU does.

DeepSpeed then takes the way it takes on GPUs: streams that wait for another, events, memory that streams keep. What has
been launched is done at once, so that only the calls are tested, and no order of work on a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from deepspeed.accelerator import set_accelerator
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

CALLS: list[str] = []


class Ready:
    """A stream or an event, whose work is always done."""

    def __init__(self, *_args: Any, **_options: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_options: CALLS.append(name)

    def query(self) -> bool:
        return True


class Asynchronous(CPU_Accelerator):  # type: ignore[misc]
    """What DeepSpeed asks of a GPU, on the CPU."""

    Stream = Event = Ready

    def is_synchronized_device(self) -> bool:
        return False

    def is_available(self) -> bool:
        return True

    def synchronize(self, device_index: int | None = None) -> None:
        CALLS.append("synchronize device")

    def current_stream(self, device_index: int | None = None) -> Ready:
        return Ready()

    default_stream = current_stream

    @contextmanager
    def stream(self, _stream: Ready) -> Iterator[None]:
        CALLS.append("stream")
        yield


def noted(name: str, work: Any) -> Any:
    """A function that does what `work` does, and is among the calls."""

    def call(*args: Any, **options: Any) -> Any:
        CALLS.append(name)
        return work(*args, **options)

    return call


def install() -> None:
    """Let DeepSpeed use it in this process."""
    set_accelerator(Asynchronous())
    tensor: Any = torch.Tensor
    tensor.record_stream = lambda _tensor, _stream: CALLS.append("record_stream")
