"""DeepSpeed's settings, and the loading of models that no rank holds whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers.integrations.deepspeed import set_hf_deepspeed_config, unset_hf_deepspeed_config

from agentrl.config.schema import LearnerSection

BUCKET_ON_CPU = 1 << 25
"""Elements of a bucket of gradients on a CPU. DeepSpeed's 500 million would lie on other pages in every update."""


def settings(section: LearnerSection, compute: torch.dtype) -> dict[str, Any]:
    """Return DeepSpeed's settings for a model whose matrix products run in the compute type."""
    bucket = {"reduce_bucket_size": BUCKET_ON_CPU} if not torch.cuda.is_available() else {}
    zero: dict[str, Any] = {**bucket, **section.deepspeed, "stage": section.stage}
    if section.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    shared = {"tensor_parallel": {"autotp_size": section.tensor_parallel}} if section.tensor_parallel > 1 else {}
    return {
        **shared,
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": section.max_grad_norm if section.stage else 0.0,  # at stage 0, the learner clips
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "torch_autocast": {"enabled": compute != torch.float32, "dtype": str(compute).removeprefix("torch.")},
        "steps_per_print": None,
        "timers": {"throughput": {"enabled": False}},  # would wait for the GPU in each pass
    }


@dataclass(frozen=True)
class Sharding:
    """A block in which `from_pretrained` divides each parameter among the ranks as soon as it is made (ZeRO stage 3).

    A rank holds one whole module at a time, and maps the files. A mixture of experts, whose weights are converted, is
    in its CPU memory as a whole meanwhile. transformers asks for `config` and `is_zero3`.
    """

    config: dict[str, Any]

    @classmethod
    def of(cls, section: LearnerSection, compute: torch.dtype) -> Sharding | None:
        """Return the block for a model with an optimizer of its own; None below stage 3."""
        return cls(settings(section, compute)) if section.stage == 3 else None

    def is_zero3(self) -> bool:
        """Return True."""
        return True

    def __enter__(self) -> None:
        set_hf_deepspeed_config(self)

    def __exit__(self, *_: object) -> None:
        unset_hf_deepspeed_config()
