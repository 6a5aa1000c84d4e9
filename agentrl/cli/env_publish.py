"""`agentrl env publish FOLDER`: check a package, build it, and say what to upload."""

from __future__ import annotations

import shlex

from agentrl.cli import env_check
from agentrl.cli.flags import Parser, path
from agentrl.packaging.building import build, check_package, check_uploader, upload

MEANING = """\
Check the package of an environment, and build its wheel and its source distribution into FOLDER/dist. Nothing is
uploaded without --upload."""


def run(words: list[str]) -> int:
    """Run every check, then build. Returns 1, and builds nothing, if a check fails."""
    parser = Parser(prog="agentrl env publish", description=MEANING)
    parser.add_argument("folder", type=path, metavar="FOLDER", help="the folder with the pyproject.toml")
    parser.add_argument("--upload", action="store_true", help="upload the files with twine")
    given = parser.parse_args(words)
    if given.upload:
        check_uploader()
    check_package(given.folder)
    if status := env_check.run([str(given.folder.absolute())]):
        print("\nnothing was built: fix what failed first")
        return status
    files = build(given.folder, given.folder / "dist")
    print("\nbuilt\n" + "\n".join(f"  {file}" for file in files))
    if given.upload:
        upload(files)
    else:
        print(f"\nto upload: python -m twine upload {shlex.join(map(str, files))}")
    return 0
