"""Options of DeepSpeed's own that a run passes on, checked before a rank starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from pydantic import ValidationError

from agentrl.config.keys import ABSENT
from agentrl.config.passed import check_passed
from agentrl.errors import ConfigError

KEYS = {
    "stage": "learner.zero_stage",
    "offload_optimizer": "learner.offload",
    "cpu_offload": "learner.offload",
    "cpu_offload_param": "learner.deepspeed.offload_param",
}
"""Options that a key of the run sets, or a newer name."""
NVME = {
    "offload_param": "every step reads the weights for its digest",
    "offload_optimizer": "a checkpoint reads the optimizer's state, whose tensors are empty while it is there",
}
"""Options that may name NVMe, and what DeepSpeed does not allow there."""
CUDA = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")
"""Options whose kernels need a GPU: those of ZeRO++."""
STAGE_3 = (
    "offload_param",
    "zero_hpz_partition_size",
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
    "zero_quantized_gradients",
)
"""Options that DeepSpeed reads at ZeRO stage 3 alone: below it no rank has a share of the parameters."""


def check_options(
    options: Mapping[str, Any], device: str = "cuda", stage: int = 3, ranks: Mapping[str, int] | None = None
) -> None:
    """Raise ConfigError for what DeepSpeed's `zero_optimization` does not have or take, or what a key sets.

    Raises it also for what needs a GPU on a CPU, for what has no effect at any `stage` up to this, for groups of ranks
    that do not divide the `ranks` of a key, and for what agentrl cannot read or save: NVMe, and ZenFlow.
    """
    if not options:
        return
    _check_absent(options)
    with redirect_stdout(sys.stderr):  # DeepSpeed logs to what stdout is while it is imported
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
    size = config.zero_hpz_partition_size
    for key, count in (ranks or {}).items():
        if count % size:
            raise ConfigError(
                f"learner.deepspeed sets zero_hpz_partition_size {size}, which does not divide {key} {count}: change "
                "one of them"
            )


def _check_absent(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for what DeepSpeed has and agentrl does not."""
    for name, why in NVME.items():
        value = options.get(name)
        if isinstance(value, Mapping) and value.get("device") == "nvme":
            raise ConfigError(f"learner.deepspeed sets {name}.device nvme, and {why}. {ABSENT['nvme']}")
    if options.get("zenflow"):
        raise ConfigError(f"learner.deepspeed sets zenflow, and {ABSENT['zenflow']}")
