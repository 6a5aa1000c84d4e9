"""DeepSpeed gets the options of the learner."""

from __future__ import annotations

import torch
from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

from agentrl.config.schema import LearnerSection
from agentrl.learner.sharding import settings


def test_the_options_of_deepspeed_and_the_offload_of_parameters_reach_it() -> None:
    options = {"offload_param": {"device": "cpu"}, "stage3_prefetch_bucket_size": 1234}
    section = LearnerSection.model_validate({"zero_stage": 3, "offload": True, "deepspeed": options})
    zero = DeepSpeedZeroConfig(**settings(section, torch.bfloat16)["zero_optimization"])
    assert zero.offload_param is not None
    assert zero.offload_optimizer is not None
    assert (zero.offload_param.device, zero.offload_optimizer.device) == ("cpu", "cpu")
    assert (zero.stage, zero.prefetch_bucket_size) == (3, 1234)
