"""Files of the working folder, accessed by the child with the program's own rights and never through a link."""

from __future__ import annotations

import os
import stat

CHUNK_BYTES = 1 << 16
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
MOVED = f".{os.urandom(8).hex()}-"
"""Prefix of names of entries that are being removed; random, so that programs do not use it by accident."""


def read(work: str, path: str) -> None:
    """Write the content of a regular file to stdout."""
    folder, name = _parent(work, path, is_made=False)
    # Non-blocking, because opening a FIFO would wait for a writer.
    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise OSError("not a regular file")
    while chunk := os.read(file, CHUNK_BYTES):
        _write_all(1, chunk)


def write(work: str, path: str) -> None:
    """Write stdin to a regular file; create missing folders."""
    folder, name = _parent(work, path, is_made=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(name, flags, 0o644, dir_fd=folder)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise OSError("not a regular file with one name")
    os.ftruncate(file, 0)
    while chunk := os.read(0, CHUNK_BYTES):
        _write_all(file, chunk)


def snapshot(work: str) -> None:
    """Write the working folder to stdout as a tar archive."""
    import tarfile

    with open(1, "wb", closefd=False) as out, tarfile.open(fileobj=out, mode="w|") as archive:
        archive.add(work, arcname=".", filter=_keep)


def restore(work: str) -> None:
    """Unpack the archive on stdin into the working folder; entries that lead outside are rejected."""
    import tarfile

    with open(0, "rb", closefd=False) as source, tarfile.open(fileobj=source, mode="r|") as archive:
        archive.extractall(work, filter=_replace)


def clear(room: str) -> None:
    """Remove what programs have put into a folder, at any depth; OSError if something cannot be removed.

    The content of a subfolder moves up to the top before the subfolder is removed, so paths stay short and no recursion
    is needed.
    """
    top, moved, mine = os.open(room, FOLDER), 0, os.getuid()
    while names := [entry.name for entry in os.scandir(top) if entry.stat(follow_symlinks=False).st_uid == mine]:
        for name in names:
            if not _opened_up(name, top):
                os.unlink(name, dir_fd=top)
                continue
            folder = os.open(name, FOLDER, dir_fd=top)
            for inner in os.listdir(folder):
                moved += 1
                _opened_up(inner, folder)  # moving a folder changes its ".." entry
                os.rename(inner, f"{MOVED}{moved}", src_dir_fd=folder, dst_dir_fd=top)
            os.close(folder)
            os.rmdir(name, dir_fd=top)
    os.close(top)


def _opened_up(name: str, parent: int) -> bool:
    """Make a folder removable; return False if it is not a folder."""
    is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode)
    if is_folder:
        os.chmod(name, 0o700, dir_fd=parent)
    return is_folder


def _keep(member):  # type: ignore[no-untyped-def]  # importing tarfile for TarInfo is slow
    """Keep regular files (with all their names), folders and links; drop devices, FIFOs and owners."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None


def _replace(member, work):  # type: ignore[no-untyped-def]
    """Sanitise a member, and remove the file at its path, which may be read-only."""
    import tarfile

    member = tarfile.data_filter(member, work)
    path = os.path.join(work, member.name)
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
        os.unlink(path)
    return member


def _parent(work: str, path: str, is_made: bool) -> tuple[int, str]:
    """Return an open folder and the name in it. Each step is opened from the previous one: no links, no races."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names or not names or "\0" in path:
        raise OSError("not a path inside the working folder")
    folder = os.open(work, FOLDER)
    for name in names[:-1]:
        if is_made:
            try:
                os.mkdir(name, 0o755, dir_fd=folder)
            except FileExistsError:
                pass
        inner = os.open(name, FOLDER, dir_fd=folder)
        os.close(folder)
        folder = inner
    return folder, names[-1]


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
