"""How a vLLM engine starts: its specification, its environment variables and the arguments of vLLM."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from agentrl.config.embedded import cache_folder
from agentrl.config.machine import cpu_flags, thread_variables
from agentrl.config.schema import EngineSection, LoraSection

if TYPE_CHECKING:
    from vllm.engine.arg_utils import AsyncEngineArgs

_WORKER_EXTENSION = "agentrl.weights.plugin.WorkerReport"


@dataclass(frozen=True, slots=True)
class VllmSpec:
    """How to start one vLLM engine. `engine` is resolved for this machine; `transfer` is shm, nccl or ipc.

    If `lora.publish` is "adapter", the engine keeps the weights of `model`, a folder, and adapters are published to it.
    vLLM leaves sockets and rendezvous files behind in `scratch`, which its owner removes ("": where vLLM puts them).
    """

    model: str
    engine: EngineSection = field(default_factory=EngineSection)
    dtype: str = "bfloat16"
    max_model_len: int = 1024
    seed: int = 0
    transfer: str = "shm"
    device: str = "cpu"
    scratch: str = ""
    lora: LoraSection = field(default_factory=LoraSection)


def environment(spec: VllmSpec, cores: Sequence[int]) -> dict[str, str]:
    """Return the variables to set before vllm is imported; `cores` are those that this process may use."""
    variables = {
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        # vLLM uses it for no completion whose processed logprobs are asked for, as ours always are: do not load it.
        "VLLM_USE_FLASHINFER_SAMPLER": "0",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if spec.scratch:
        variables["VLLM_RPC_BASE_PATH"] = variables["TMPDIR"] = spec.scratch
        variables |= _compiling()
    if spec.transfer == "ipc":
        # CUDA handles travel to the EngineCore, a child of this process, as pickles.
        variables["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    if Path(spec.model).is_dir():
        variables["HF_HUB_OFFLINE"] = "1"
    if spec.device == "cpu":
        threads = min(spec.engine.threads or len(cores), len(cores))
        variables |= thread_variables(threads)
        if spec.engine.tensor_parallel <= 1:
            # The model then runs inside the EngineCore: one process less to start and to talk to.
            variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return variables


def _compiling() -> dict[str, str]:
    """Return the variables that keep what engines compile for later runs; none where the cache cannot be written.

    Even an eager engine compiles functions of its sampler, by default into TMPDIR, which ends with the run: g++ took 15
    to 26 s of every start on two cores. Machines with other CPUs, which may share the file system, have a folder of
    their own. The header that torch would compile first stays in TMPDIR all the same, and takes longer than it saves.
    """
    flags = "\n".join(sorted(set(cpu_flags(Path("/proc/cpuinfo").read_text()))))
    folder = cache_folder() / "torchinductor" / blake2b(flags.encode(), digest_size=8).hexdigest()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}
    if not os.access(folder, os.W_OK):
        return {}
    chosen = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    return {name: os.environ.get(name, value) for name, value in chosen.items()}


def engine_args(spec: VllmSpec) -> AsyncEngineArgs:
    """Return the arguments of vLLM's engine."""
    from vllm.config.weight_transfer import WeightTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    engine = spec.engine
    options: dict[str, Any] = {}
    if spec.device == "cpu" or engine.kv_cache_gib:
        options["kv_cache_memory_bytes"] = int((engine.kv_cache_gib or _kv_cache_gib()) * (1 << 30))
    elif engine.gpu_memory_utilization:
        options["gpu_memory_utilization"] = engine.gpu_memory_utilization
    if spec.device == "cpu":
        # A seeded prompt that is cut in two kills vLLM's CPU worker ("CPU Generator does not use offset").
        options["enable_chunked_prefill"] = False
        options["max_num_batched_tokens"] = max(8192, spec.max_model_len)
    if spec.lora.publish == "adapter":
        options |= lora_options(spec.lora, Path(spec.model))
    return AsyncEngineArgs(
        model=spec.model,
        dtype=spec.dtype,
        max_model_len=spec.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        tensor_parallel_size=max(1, engine.tensor_parallel),
        pipeline_parallel_size=engine.pipeline_parallel,
        enforce_eager=bool(engine.enforce_eager),
        enable_prefix_caching=engine.prefix_caching,
        enable_sleep_mode=spec.device != "cpu",
        seed=spec.seed,
        logprobs_mode="processed_logprobs",
        worker_extension_cls=_WORKER_EXTENSION,
        weight_transfer_config=WeightTransferConfig(backend=f"agentrl_{spec.transfer}"),
        disable_log_stats=True,
        **(options | engine.vllm),
    )


def lora_options(lora: LoraSection, model: Path) -> dict[str, Any]:
    """Return the arguments of an engine that serves adapters of `model`, a folder.

    vLLM compares the last parts of names. What it wraps beyond the layers of an adapter computes as before, and a layer
    of the adapter that it does not wrap is found at each publication.
    """
    from vllm.config.lora import MaxLoRARanks

    return {
        "enable_lora": True,
        "max_lora_rank": min(rank for rank in get_args(MaxLoRARanks) if rank >= lora.rank),
        # A request that is sent while a pause begins is sampled after it, by the adapter that it was sent with.
        "max_loras": 2,
        # By default vLLM adapts the head too, and then cannot compute the logprobs of a prompt beside other requests.
        "lora_target_modules": sorted({layer.rpartition(".")[2] for layer in lora.layers} or linear_layers(model)),
    }


def linear_layers(model: Path) -> set[str]:
    """Return the names of the layers in the model's blocks, which are numbered, that have a matrix."""
    from safetensors import safe_open

    found: set[str] = set()
    for path in model.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            names = [name for name in file.keys() if len(file.get_slice(name).get_shape()) == 2]  # noqa: SIM118
        found |= {match[1] for name in names if (match := re.search(r"\.\d+\..*?(\w+)\.weight$", name))}
    return found


def _kv_cache_gib() -> float:
    """Return an eighth of the machine's memory, between 1 and 8 GiB; pages are allocated when first used."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return min(8.0, max(1.0, total / 8))
