"""Specification of a learner rank."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch

from agentrl.algorithms.base import RunShape
from agentrl.config.schema import (
    MICRO_BATCH_TOKENS,
    AlgorithmSection,
    CriticSection,
    LearnerSection,
    LoraSection,
    ScorersSection,
)

DTYPES = {"auto": torch.bfloat16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True)
class LearnerSpec:
    """What a learner rank is built from; picklable.

    `steps` is the length of the run in batches, for the learning rate schedule. `device` is cpu or cuda. Weights are
    staged in shared memory, or under `staging` if it is too small, in buckets of `bucket_bytes`. The critic
    starts from `critic_model`, or from `model`; `teacher` is the model of the column "teacher".
    """

    model: Path
    steps: int
    dtype: str = "auto"
    device: str = "cpu"
    learner: LearnerSection = field(default_factory=LearnerSection)
    critic: CriticSection = field(default_factory=CriticSection)
    critic_model: Path | None = None
    teacher: Path | None = None
    scorers: ScorersSection = field(default_factory=ScorersSection)
    algorithm: AlgorithmSection = field(default_factory=AlgorithmSection)
    run: RunShape = field(default_factory=RunShape)
    lora: LoraSection = field(default_factory=LoraSection)
    gradient_checkpointing: bool = False
    yields_gpus: bool = False
    """Whether engines use the ranks' GPUs between updates: the optimizer's state then waits in CPU memory."""
    staging: Path = Path(tempfile.gettempdir())
    bucket_bytes: int = 256 << 20

    @property
    def compute(self) -> torch.dtype:
        """The type of matrix products, of published weights and of saved models."""
        return DTYPES[self.dtype]

    @property
    def torch_device(self) -> torch.device:
        """The device of this process: a rank sees one GPU, or none."""
        return torch.device("cuda", 0) if self.device == "cuda" else torch.device("cpu")

    @property
    def micro_batch_tokens(self) -> int:
        """Most tokens in one forward pass."""
        return self.learner.micro_batch_tokens or MICRO_BATCH_TOKENS[self.device]
