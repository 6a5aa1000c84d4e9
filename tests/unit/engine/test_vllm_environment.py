"""What vLLM's processes find in their environment; nothing here imports vllm."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentrl.config.schema import EngineSection
from agentrl.engine.vllm.engine import VllmEngine
from agentrl.engine.vllm.settings import VllmSpec, environment
from agentrl.errors import EngineRefusedError
from agentrl.types import Prompt, Sampling

SPEC = VllmSpec("owner/name")


@pytest.mark.parametrize(("threads", "cores", "expected"), [(0, 2, "2"), (1, 2, "1"), (8, 4, "4")])
def test_an_engine_computes_on_the_cores_it_may_use(threads: int, cores: int, expected: str) -> None:
    spec = replace(SPEC, engine=EngineSection(threads=threads))
    assert environment(spec, range(cores))["OMP_NUM_THREADS"] == expected


def test_threads_that_wait_sleep_soon_unless_the_user_has_said_how_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert environment(SPEC, range(2))["GOMP_SPINCOUNT"] == "2000"
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert environment(SPEC, range(2))["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    variables = environment(SPEC, range(2))
    assert (variables["OMP_WAIT_POLICY"], "GOMP_SPINCOUNT" in variables) == ("active", False)


def test_a_gpu_engine_keeps_its_threads_and_executor_to_vllm() -> None:
    variables = environment(replace(SPEC, device="cuda"), range(8))
    assert not {"OMP_NUM_THREADS", "GOMP_SPINCOUNT", "VLLM_ENABLE_V1_MULTIPROCESSING"} & set(variables)


def test_what_an_engine_compiles_is_kept_for_later_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, cache = replace(SPEC, scratch=str(tmp_path / "run")), tmp_path / "cache"
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # an engine of another test set it
    monkeypatch.setenv("AGENTRL_CACHE", str(cache))
    kept = Path(environment(spec, range(2))["TORCHINDUCTOR_CACHE_DIR"])
    assert kept.is_dir()
    assert kept.is_relative_to(cache / "torchinductor")
    assert environment(spec, range(4))["TORCHINDUCTOR_CACHE_DIR"] == str(kept)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    assert environment(spec, range(2))["TORCHINDUCTOR_CACHE_DIR"] == "mine"


def test_a_cache_that_cannot_be_written_ends_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AGENTRL_CACHE", str(tmp_path / "file"))
    assert "TORCHINDUCTOR_CACHE_DIR" not in environment(replace(SPEC, scratch=str(tmp_path)), range(2))


def test_a_local_model_asks_no_hub_and_a_hub_model_may(tmp_path: Path) -> None:
    assert environment(replace(SPEC, model=str(tmp_path)), range(2))["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in environment(SPEC, range(2))


def test_nothing_is_reported_to_anyone() -> None:
    assert environment(SPEC, range(2))["VLLM_NO_USAGE_STATS"] == "1"


def test_only_cuda_handles_are_pickled() -> None:
    assert "VLLM_ALLOW_INSECURE_SERIALIZATION" not in environment(SPEC, range(2))
    assert environment(replace(SPEC, transfer="ipc"), range(2))["VLLM_ALLOW_INSECURE_SERIALIZATION"] == "1"


def test_a_spec_travels_between_processes() -> None:
    assert pickle.loads(pickle.dumps(SPEC)) == SPEC


async def test_an_engine_that_was_not_started_refuses() -> None:
    engine = VllmEngine(SPEC)
    with pytest.raises(EngineRefusedError, match="no published version"):
        await engine.generate(Prompt((1,)), Sampling(1), 1.0)
    with pytest.raises(EngineRefusedError, match="not started"):
        await engine.pause(1.0)
    await engine.close()
    await engine.close()


def test_importing_the_engine_imports_neither_vllm_nor_torch() -> None:
    code = "import sys, agentrl.engine.vllm.engine; sys.exit(any(name in sys.modules for name in ('vllm', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
