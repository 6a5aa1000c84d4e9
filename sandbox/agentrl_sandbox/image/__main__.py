"""python -m agentrl_sandbox.image [--tar FILE]: give the image to the engine, or write its file system to a file."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from agentrl_sandbox.image.rootfs import interpreter_folder, write_rootfs


def main() -> None:
    """Build it, tell its name."""
    parser = argparse.ArgumentParser(prog="python -m agentrl_sandbox.image", description=__doc__)
    parser.add_argument("--tar", type=Path, help="write the root file system here, for `docker import` elsewhere")
    tar = parser.parse_args().tar
    if tar:
        with tar.open("wb") as file:
            write_rootfs(file)
        print(tar)
        return
    from agentrl_sandbox.backends.docker import IMAGE, connect

    content = io.BytesIO()
    write_rootfs(content)
    repository, _, tag = IMAGE.partition(":")
    client = connect()
    changes = [f"ENV PATH={interpreter_folder()}:/usr/bin:/bin"]
    client.api.import_image_from_data(content.getvalue(), repository=repository, tag=tag, changes=changes)
    client.close()
    print(f"{IMAGE}, {len(content.getvalue()) >> 20} MiB")


if __name__ == "__main__":
    main()
