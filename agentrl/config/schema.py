"""Every key a run can set, typed and documented where it is defined. Imports neither torch, ray, vllm nor deepspeed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

Device = Literal["auto", "cpu", "cuda"]
DType = Literal["auto", "float32", "bfloat16"]


class Keys(BaseModel):
    """Checked keys: unknown ones are refused, and so is a point in a whole number (1.000 for 1000)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def whole(cls, value: Any, info: ValidationInfo) -> Any:
        """Whole numbers are written without a point."""
        field = cls.model_fields.get(info.field_name or "")
        if field is not None and field.annotation is int and isinstance(value, float | bool):
            raise PydanticCustomError("whole", "Input should be a whole number, without a point")
        return value


class Section(Keys):
    """A group of keys of a run."""

    model_config = ConfigDict(allow_inf_nan=False)


class EnvSection(BaseModel):
    """The environment; every other key of this section belongs to the env's own `class Config`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = Field("math", description="environment: a name, owner/name[@version], ./file.py[:Class] or ./folder")

    @property
    def options(self) -> dict[str, Any]:
        """The env's own keys, as given; its `Config` checks them."""
        return dict(self.model_extra or {})


class ModelSection(Section):
    """The model that is trained."""

    name: str = Field("", description="folder, checkpoint, run or hub id; empty: the default for this machine")
    dtype: DType = Field("auto", description="compute type; auto: bfloat16")
    max_context: int = Field(1024, gt=0, description="longest sequence in tokens, prompt and answers together")
    gradient_checkpointing: bool = Field(False, description="recompute activations in the backward pass to save memory")


class EngineSection(Section):
    """The sampling engines."""

    count: int = Field(1, ge=1, description="how many engines")
    tensor_parallel: int = Field(1, ge=1, description="GPUs for each engine")
    threads: int = Field(0, ge=0, description="CPU threads for each engine; 0: chosen for the machine")
    kv_cache_gib: float = Field(0.0, ge=0, description="KV cache of a CPU engine in GiB; 0: chosen for the machine")
    gpu_memory_utilization: float = Field(
        0.0, ge=0, le=0.95, description="share of a GPU's memory; 0: chosen for the placement"
    )
    max_num_seqs: int = Field(256, gt=0, le=8192, description="requests that one engine samples at once")
    enforce_eager: bool | None = Field(
        None, description="no compilation; default: true on CPU (starts three times faster)"
    )
    prefix_caching: bool = Field(True, description="keep the KV of shared prefixes")
    placement: Literal["auto", "colocate", "separate"] = Field(
        "auto", description="share the learner's GPUs (sleep/wake) or not"
    )
    start_timeout_s: float = Field(600.0, gt=0, description="deadline for an engine's start")
    restarts: int = Field(5, ge=0, description="engine or worker deaths in a run before it stops")


class RolloutSection(Section):
    """How tasks become trajectories."""

    prompts: int = Field(8, ge=1, description="tasks (groups) in one batch")
    group_size: int = Field(8, ge=1, description="episodes of each task")
    max_tokens: int = Field(
        0, ge=0, description="most tokens that one turn may sample; 0: 24 for the embedded model, else 512"
    )
    max_turns: int = Field(0, ge=0, description="most turns of an episode; 0: the env's own limit")
    # Below 0.01 vLLM samples at 0.01 all the same, and the learner would score another distribution.
    temperature: float = Field(1.0, ge=0.01, le=10, description="sampling temperature in training")
    max_staleness: int = Field(0, ge=0, description="oldest age of a trained token, in updates; 0: synchronous")
    on_stale: Literal["drop", "wait"] = Field(
        "drop", description="a sample over the bound is dropped; or batches keep the order of dispatch, and wait for it"
    )
    workers: int = Field(1, ge=1, description="rollout worker processes")
    episode_timeout_s: float = Field(600.0, gt=0, description="deadline for an episode")
    turn_timeout_s: float = Field(300.0, gt=0, description="deadline for one generation")
    max_invalid: float = Field(
        0.5,
        gt=0,
        le=1,
        description="share of invalid samples among those of a batch above which the run stops",
    )


class AlgorithmSection(Section):
    """How rewards become advantages, and the loss."""

    name: str = Field("grpo", description="grpo, rloo or reinforce++")
    kl_coef: float = Field(
        0.0, ge=0, le=100, description="weight of KL(policy || reference) in the loss; 0: no reference"
    )
    clip_low: float = Field(0.2, gt=0, le=1, description="PPO clip below 1")
    clip_high: float = Field(0.28, gt=0, le=100, description="PPO clip above 1 (clip-higher)")
    tis_cap: float = Field(2.0, gt=0, description="truncation C of the weight min(C, learner / sampler)")
    old_logprobs: Literal["learner", "sampler"] = Field(
        "learner", description="what the ratio is taken against; sampler switches the truncated weight off"
    )
    filter_zero_variance: bool = Field(
        False, description="leave out groups whose advantages are all 0, and sample others"
    )
    max_filtered_batches: int = Field(
        4, ge=1, description="batches of groups that a step may leave out so; then it trains on what there is"
    )


MICRO_BATCH_TOKENS = {"cpu": 2048, "cuda": 4096}
"""By device: on a CPU more tokens in a pass cost memory and bring no speed."""


class LearnerSection(Section):
    """The optimizer and its processes."""

    ranks: int = Field(1, ge=1, description="learner processes (one GPU each where there are GPUs)")
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="DeepSpeed ZeRO stage")
    offload: bool = Field(False, description="keep optimizer state in CPU memory (ZeRO stage 1 and up, on GPUs)")
    threads: int = Field(0, ge=0, description="CPU threads for each rank; 0: chosen for the machine")
    lr: float = Field(
        0.0, ge=0, le=1, description="peak learning rate of AdamW; 0: 4e-5 for the embedded model, else 1e-6"
    )
    warmup_steps: int = Field(0, ge=0, description="steps of the run with linear warm-up")
    schedule: Literal["constant", "linear", "cosine"] = Field("linear", description="the rate after the warm-up")
    min_lr_ratio: float = Field(0.1, ge=0, le=1, description="the rate at the end, as a share of the peak")
    weight_decay: float = Field(0.0, ge=0, le=1, description="AdamW's decoupled weight decay")
    beta1: float = Field(0.9, ge=0, lt=1, description="AdamW's first moment")
    beta2: float = Field(0.95, ge=0, lt=1, description="AdamW's second moment")
    max_grad_norm: float = Field(1.0, gt=0, description="gradient clipping by global norm")
    updates_per_batch: int = Field(1, ge=1, description="optimizer steps for each batch")
    micro_batch_tokens: int = Field(
        0, ge=0, description="most tokens in one forward pass of a rank; 0: 2048 on a CPU, 4096 on a GPU"
    )
    step_timeout_s: float = Field(1800.0, gt=0, description="deadline for one learner step")


class WeightsSection(Section):
    """How new weights reach the engines."""

    transfer: Literal["auto", "shm", "nccl", "ipc"] = Field("auto", description="auto: shm on CPU, ipc or nccl on GPUs")
    bucket_mib: int = Field(256, ge=1, le=16_384, description="size of one bucket")
    verify: bool = Field(
        True, description="run the logprob canary on every publication; tensors are hashed in any case"
    )
    canary_tolerance: float = Field(
        0.0, ge=0, description="largest logprob difference; 0: 1e-4 in float32, calibrated at version 0 in bfloat16"
    )
    publish_timeout_s: float = Field(300.0, gt=0, description="deadline for one publication")


class EvalSection(Section):
    """Evaluation on held-out tasks."""

    every: int = Field(0, ge=0, description="steps between evaluations during the run; 0: before and after only")
    tasks: int = Field(64, ge=0, description="held-out tasks; 0: no evaluation")
    samples: int = Field(16, ge=1, description="samples of each task")
    temperature: float = Field(1.0, ge=0, le=10, description="sampling temperature in evaluation")
    k: int = Field(0, ge=0, description="k of pass@k; 0: as many as samples")


class CheckpointSection(Section):
    """Checkpoints."""

    every: int = Field(10, ge=0, description="steps between checkpoints; 0: at the end only")
    keep: int = Field(2, ge=1, description="how many of the newest are kept")


class TrackSection(Section):
    """Where metrics go besides metrics.jsonl."""

    tensorboard: bool = Field(True, description="write TensorBoard files into the run folder")
    wandb: bool = Field(False, description="also log to Weights & Biases (an account is needed)")
    wandb_project: str = Field("agentrl", description="the Weights & Biases project")


class Config(Section):
    """One run."""

    out: Path | None = Field(None, description="the run folder; default: runs/<env>-<time>")
    seed: int = Field(0, ge=0, lt=2**32, description="seed of tasks, groups, env randomness and sampling")
    steps: int = Field(40, ge=1, description="optimizer batches to train")
    device: Device = Field("auto", description="auto: cuda where it exists, else cpu")
    env: EnvSection = Field(default_factory=EnvSection)
    model: ModelSection = Field(default_factory=ModelSection)
    engine: EngineSection = Field(default_factory=EngineSection)
    rollout: RolloutSection = Field(default_factory=RolloutSection)
    algorithm: AlgorithmSection = Field(default_factory=AlgorithmSection)
    learner: LearnerSection = Field(default_factory=LearnerSection)
    weights: WeightsSection = Field(default_factory=WeightsSection)
    eval: EvalSection = Field(default_factory=EvalSection)
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)
    track: TrackSection = Field(default_factory=TrackSection)
