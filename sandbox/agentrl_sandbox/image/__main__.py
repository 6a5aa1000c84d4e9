"""python -m agentrl_sandbox.image: import the image into the engine, or write its file system to a file."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from agentrl_sandbox.errors import PackagesError
from agentrl_sandbox.image.rootfs import interpreter_folder, write_rootfs
from agentrl_sandbox.packages import checked, paths, required


def main() -> None:
    """Build the image and print its name."""
    parser = argparse.ArgumentParser(prog="python -m agentrl_sandbox.image", description=__doc__)
    parser.add_argument("--tar", type=Path, help="write the root file system here, for `docker import` elsewhere")
    parser.add_argument("--packages", nargs="+", default=[], help="installed packages that programs can import")
    arguments = parser.parse_args()
    try:
        names = sorted(required(checked(arguments.packages)))
    except PackagesError as error:
        parser.exit(1, f"{error}\n")
    if arguments.tar:
        with arguments.tar.open("wb") as file:
            write_rootfs(file, paths(names))
        print(arguments.tar)
    else:
        _import(names)


def _import(names: list[str]) -> None:
    """Import the image into the engine and print its name."""
    from agentrl_sandbox.backends.docker import IMAGE, PACKAGES_LABEL, connect

    content = io.BytesIO()
    write_rootfs(content, paths(names))
    repository, _, tag = IMAGE.partition(":")
    client = connect()
    changes = [f"ENV PATH={interpreter_folder()}:/usr/bin:/bin"]
    changes += [f'LABEL {PACKAGES_LABEL}="{" ".join(names)}"'] if names else []
    client.api.import_image_from_data(content.getvalue(), repository=repository, tag=tag, changes=changes)
    client.close()
    print(f"{IMAGE}, {len(content.getvalue()) >> 20} MiB{', with ' if names else ''}{', '.join(names)}")


if __name__ == "__main__":
    main()
