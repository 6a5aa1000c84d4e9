"""The wheel of the agentrl that runs, so that another interpreter gets the same code from no index."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from agentrl.errors import ConfigError

CORE = "agentrl-core"
PACKAGES = ("agentrl", "agentrl_sandbox", "agentrl_tools")
WHEEL = "Wheel-Version: 1.0\nGenerator: agentrl\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def pack_core(folder: Path) -> Path:
    """Write the wheel of this agentrl, installed or from source, into a folder. Returns its path.

    Its metadata are those of the installed distribution. Raises ConfigError if there is none.
    """
    try:
        installed = distribution(CORE)
    except PackageNotFoundError as error:
        raise ConfigError(f"{CORE} is not installed here, so nothing says what it needs: pip install -e .") from error
    info = f"{CORE.replace('-', '_')}-{installed.version}.dist-info"
    files = dict(_modules())
    about = installed.read_text("METADATA") or installed.read_text("PKG-INFO")  # PKG-INFO beside a source tree
    if not about:
        raise ConfigError(f"{CORE} is installed without its metadata: pip install -e . again")
    files[f"{info}/METADATA"] = about.encode()
    files[f"{info}/entry_points.txt"] = (installed.read_text("entry_points.txt") or "").encode()
    files[f"{info}/WHEEL"] = WHEEL.encode()
    lines = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    path = folder / f"{info.removesuffix('.dist-info')}-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
    return path


def _modules() -> Iterator[tuple[str, bytes]]:
    for package in PACKAGES:
        spec = find_spec(package)
        for home in map(Path, (spec and spec.submodule_search_locations) or ()):
            for file in sorted(home.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    yield f"{package}/{file.relative_to(home).as_posix()}", file.read_bytes()


def _digest(data: bytes) -> str:
    """Return the sha256 in the form of a RECORD (PEP 376)."""
    return urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
