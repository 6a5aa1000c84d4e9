"""Options of DeepSpeed's own that a run passes on, checked before a rank starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from agentrl.config.passed import check_passed
from agentrl.errors import ConfigError

KEYS = {"stage": "learner.zero_stage", "offload_optimizer": "learner.offload", "cpu_offload": "learner.offload"}
"""Options that a key of the run sets."""
CUDA = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients", "zenflow")
"""Options whose kernels need a GPU: ZeRO++ and ZenFlow."""
STAGE_3 = (
    "offload_param",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
)
"""Options that DeepSpeed reads at ZeRO stage 3 alone: below it no rank has a share of the parameters."""


def check_options(options: Mapping[str, Any], device: str = "cuda", stage: int = 3, ranks: int = 0) -> None:
    """Raise ConfigError for what DeepSpeed's `zero_optimization` does not have or take, or what a key sets.

    Raises it also for what needs a GPU on a CPU, for what has no effect at a ZeRO stage, for groups of ranks that do
    not divide the `ranks` (0: not known), and for parameters on NVMe, which cannot be read for the digest of a step.
    """
    if not options:
        return
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # takes seconds

    check_passed("learner.deepspeed", options, "zero_optimization", DeepSpeedZeroConfig.model_fields, KEYS)
    if device == "cpu" and (found := [name for name in CUDA if options.get(name)]):
        raise ConfigError(f"learner.deepspeed sets {found[0]}, whose kernels need a GPU: leave it out")
    try:
        config = DeepSpeedZeroConfig(**options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"learner.deepspeed: {where}: {first['msg']}, got {first['input']!r}") from None
    if stage < 3 and (found := [name for name in STAGE_3 if options.get(name)]):
        raise ConfigError(
            f"learner.deepspeed sets {found[0]}, which has an effect at learner.zero_stage 3 alone: set that, or leave "
            "it out"
        )
    if ranks % config.zero_hpz_partition_size:
        raise ConfigError(
            f"learner.deepspeed sets zero_hpz_partition_size {config.zero_hpz_partition_size}, which does not divide "
            f"learner.ranks {ranks}: change one of them"
        )
    if config.offload_param is not None and config.offload_param.device == "nvme":
        raise ConfigError(
            "learner.deepspeed sets offload_param.device nvme, and every step reads the weights for its digest, which "
            "DeepSpeed does not allow on NVMe: set it to cpu"
        )
