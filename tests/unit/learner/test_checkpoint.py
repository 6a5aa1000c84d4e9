"""A checkpoint separates the model that people share from the training state."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentrl.config.models import locate
from agentrl.errors import RunError
from agentrl.learner import checkpoint
from agentrl.learner.checkpoint import MODEL, write_model
from agentrl.learner.shards import StateFiles, write
from agentrl.records.checkpoints import prune
from tests.tiny import tiny_model


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with files that a model trained from it does not have."""
    source = tmp_path_factory.mktemp("source")
    tiny_model(source)
    (source / "generation_config.json").write_text('{"eos_token_id": 2}')
    for name in ("agentrl.json", ".hidden", "pytorch_model.bin", "model.safetensors.index.json"):
        (source / name).touch()
    (source / "model.safetensors").chmod(0o600)
    return source


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_the_model_is_a_folder_of_its_own_that_others_can_read(source: Path, tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_model(source, [("a", torch.zeros(3, dtype=torch.bfloat16))], torch.bfloat16, tmp_path / MODEL)
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == [MODEL]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / MODEL).iterdir()}
    assert set(modes.values()) == {0o666 & ~umask}
    assert {"config.json", "generation_config.json", "tokenizer.json", "model.safetensors"} <= modes.keys()
    assert modes.keys().isdisjoint({"agentrl.json", ".hidden", "pytorch_model.bin", "model.safetensors.index.json"})


def test_a_checkpoint_can_be_named_as_a_model(source: Path, tmp_path: Path) -> None:
    write_model(source, [("a", torch.zeros(3, dtype=torch.bfloat16))], torch.bfloat16, tmp_path / MODEL)
    (tmp_path / "state").mkdir()
    assert locate(str(tmp_path)) == tmp_path / MODEL
    assert locate(str(tmp_path / MODEL)) == tmp_path / MODEL
    assert locate(str(source)) == source


def test_a_large_model_is_written_in_files_with_an_index_that_from_pretrained_reads(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 40_000)
    model = AutoModelForCausalLM.from_pretrained(tiny_model(tmp_path / "tiny"), dtype=torch.float32)
    named = [(name, tensor) for name, tensor in model.state_dict().items() if name != "lm_head.weight"]
    write_model(tmp_path / "tiny", iter(named), torch.float32, tmp_path / MODEL)
    files = sorted(path.name for path in (tmp_path / MODEL).glob("*.safetensors"))
    assert files == [f"model-{n + 1:05}-of-{len(files):05}.safetensors" for n in range(len(files))]
    assert len(files) > 2
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / MODEL).state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in named)


@pytest.mark.parametrize(
    ("text", "says"), [(None, "it does not exist"), ("{", "Expecting property name"), ("1", "must be")]
)
def test_a_checkpoint_that_cannot_be_read_is_named_once(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        (tmp_path / checkpoint.PROGRESS).write_text(text)
    with pytest.raises(RunError, match=f"^checkpoint .* cannot be read: progress.json: .*{says}.*Delete it") as refused:
        checkpoint.read_progress(tmp_path)
    assert str(refused.value).count(tmp_path.name) == 1


def test_the_damaged_file_of_a_checkpoint_is_named(tmp_path: Path) -> None:
    write([("a/parameter/0", torch.zeros(3))], tmp_path, 0)
    [file] = tmp_path.iterdir()
    os.truncate(file, 10)
    with pytest.raises(ValueError, match=f"^{file.name}: Error while deserializing header"):
        StateFiles(tmp_path)


def test_a_checkpoint_gets_its_name_once_all_of_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss leaves no checkpoint that has its name but not its files."""
    folder = tmp_path / "step-000001"
    partial = checkpoint.partial(folder)
    (partial / MODEL).mkdir(parents=True)
    (partial / MODEL / "weights").write_bytes(b"w")
    synced: list[tuple[Path, bool]] = []
    sync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), folder.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    checkpoint.commit(folder, checkpoint.Progress(1, {}))
    whole = (partial, partial / MODEL, partial / MODEL / "weights", partial / checkpoint.PROGRESS)
    assert sorted(synced[:-1]) == sorted((path, False) for path in whole)
    assert synced[-1] == (tmp_path, True), "and then its name"


def test_a_full_disk_is_said_of_the_file_and_what_a_save_leaves_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "step-000001"
    partial = checkpoint.partial(folder)
    partial.mkdir()
    (partial / checkpoint.PROGRESS).symlink_to("/dev/full")
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
    try:
        with pytest.raises(
            RunError, match=r"^cannot write .*00000\.safetensors: .*too large.*\. Make room, then continue"
        ):
            write([("a/parameter/0", torch.zeros(4096))], partial, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    with pytest.raises(RunError, match=r"^cannot write .*progress\.json: No space left on device\. Make room"):
        checkpoint.commit(folder, checkpoint.Progress(1, {}))
    (tmp_path / "step-000002").mkdir()
    (tmp_path / "mine.partial").touch()
    assert prune(tmp_path, 1) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.partial", "step-000002"]
