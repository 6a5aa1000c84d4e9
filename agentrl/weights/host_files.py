"""The staged buckets of one host: an object in a process there, which reads them for other hosts and writes theirs."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from agentrl.weights.staging import discard_staged, shared_memory_takes, staging_root

Parcel: TypeAlias = Mapping[str, NDArray[np.uint8]]
"""The bytes of a bucket's files by their names; that of a single file is ""."""


class HostFiles:
    """Reads, writes and removes buckets of a run on `host`; those that /dev/shm cannot take are in `fallback`.

    All hosts see that folder, so each host has names of its own for what it writes.
    """

    def __init__(self, fallback: Path, host: str) -> None:
        self._fallback, self._host = fallback, host
        self._written: set[str] = set()  # and not discarded yet
        self._discarded: set[str] = set()  # and not written yet

    def check(self) -> None:
        """Answer, which a process that is gone does not."""

    def has_room(self, nbytes: int) -> bool:
        """Return whether Ray's object store, which is in /dev/shm like the buckets, can take so many bytes more.

        Where it cannot, Ray's processes die of a signal.
        """
        return shared_memory_takes(nbytes)

    def read(self, path: Path) -> Parcel:
        """Return the bytes of a bucket, of which a copy in the object store of this host is made."""
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return {file.name if path.is_dir() else "": np.fromfile(file, np.uint8) for file in files}

    async def share(self, path: Path, copy: Path) -> None:
        """Let all hosts see a bucket as `copy`, which is in a folder of them all; it may be there already."""
        await asyncio.to_thread(_share, path, copy)

    def write(self, name: str, parcel: Parcel) -> Path:
        """Write a bucket under a name that no other bucket has; nothing is left if it is discarded already."""
        copy = self._copy(name)
        path = staging_root(sum(array.nbytes for array in parcel.values()), self._fallback) / copy
        try:
            for file, array in parcel.items():
                path.mkdir(exist_ok=True) if file else None
                array.tofile(path / file if file else path)
        except BaseException:
            discard_staged(copy, self._fallback)
            self._is_given_up(name)
            raise
        if self._is_given_up(name):
            discard_staged(copy, self._fallback)
        return path

    def discard(self, name: str, is_source: bool = False) -> None:
        """Remove a bucket that was staged or written here, also one that is still to be written unless `is_source`."""
        if name in self._written:
            self._written.remove(name)
        elif not is_source:
            self._discarded.add(name)
        for each in (name, self._copy(name)):
            discard_staged(each, self._fallback)

    def _is_given_up(self, name: str) -> bool:
        """Return whether a bucket was discarded before it was written, and forget that."""
        if name not in self._discarded:
            self._written.add(name)
            return False
        self._discarded.remove(name)
        return True

    def _copy(self, name: str) -> str:
        return f"{name}-{self._host}"


def _share(path: Path, copy: Path) -> None:
    if path.is_dir():
        if path != copy:
            shutil.copytree(path, copy)
    elif path != copy:
        shutil.copyfile(path, copy)
    else:  # written through a mapping, which a network file system sends on nobody knows when
        with path.open("rb") as file:
            os.fsync(file.fileno())
