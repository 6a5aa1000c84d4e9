"""Options of DeepSpeed's own that a run passes on, checked before a rank starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from agentrl.config.passed import check_passed
from agentrl.errors import ConfigError

KEYS = {"stage": "learner.zero_stage", "offload_optimizer": "learner.offload", "cpu_offload": "learner.offload"}
"""Options that a key of the run sets."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for what DeepSpeed's `zero_optimization` does not have or take, or what a key sets."""
    if not options:
        return
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig  # takes seconds

    check_passed("learner.deepspeed", options, "zero_optimization", DeepSpeedZeroConfig.model_fields, KEYS)
    try:
        DeepSpeedZeroConfig(**options)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"learner.deepspeed: {where}: {first['msg']}, got {first['input']!r}") from None
