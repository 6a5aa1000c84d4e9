"""Every key of a run, typed and documented where it is defined. Imports neither torch, ray, vllm nor deepspeed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from agentrl.config.environments import MOST, check_labels, tables
from agentrl.config.urls import fault_of_urls, has_credentials, listed
from agentrl.config.values import anchored_model, expanded

Device = Literal["auto", "cpu", "cuda"]
Place = Literal["colocate", "separate"]
DType = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Unset:
    """What the default of a key means where the value itself does not say it (0, "", "auto" or None)."""

    meaning: str


FOR_MACHINE = Unset("chosen for this machine")


class Keys(BaseModel):
    """Keys that are checked: unknown ones are refused, and so is a decimal point in an integer (1.000 for 1000)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        """Let a key whose default a subclass changes keep its meaning and its bounds: `clip_high: float = 0.3`."""
        super().__pydantic_init_subclass__(**keywords)
        inherited = [_inherit(info, cls.__mro__[1:], name) for name, info in cls.model_fields.items()]
        if any(inherited):
            cls.model_rebuild(force=True)

    @field_validator("*", mode="before")
    @classmethod
    def whole(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a decimal point in an integer."""
        field = cls.model_fields.get(info.field_name or "")
        if field is not None and field.annotation is int and isinstance(value, float | bool):
            point = "" if isinstance(value, bool) else ", without a point"
            raise PydanticCustomError("whole", f"Input should be a whole number{point}")
        return value


def _inherit(info: FieldInfo, bases: Iterable[type], name: str) -> bool:
    """Complete a field without a description from the field that it replaces; returns whether there is one."""
    fields = (vars(base).get("__pydantic_fields__", {}).get(name) for base in bases)
    replaced: FieldInfo | None = next((field for field in fields if field is not None), None)
    if replaced is None or info.description is not None or replaced.description is None:
        return False
    info.description = replaced.description
    if info.annotation == replaced.annotation and not info.metadata:
        info.metadata = [item for item in replaced.metadata if not isinstance(item, Unset)]
    return True


class Section(Keys):
    """A group of keys of a run. Empty text is no value: leave the key out for its default."""

    model_config = ConfigDict(allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def named(cls, value: Any) -> Any:
        """Refuse an empty path or name."""
        if isinstance(value, str) and not value.strip():
            raise PydanticCustomError("empty", "Input should not be empty")
        return value

    def differs(self, key: str) -> bool:
        """Return whether a key has another value than its default."""
        return bool(getattr(self, key) != type(self).model_fields[key].default)


class PluginSection(Section):
    """A class by name; every other key belongs to its own `class Config`."""

    model_config = ConfigDict(extra="allow")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The keys of the class as they were set; its `Config` checks them."""
        return dict(self.model_extra or {})


ENDPOINT_KEYS = ("concurrency", "token_budget")
POLICY = "policy"
"""The model of a role that the policy plays."""


class RoleKeys(Section):
    """One entry of `roles`: the model that plays a role, such as a judge or a simulated user."""

    model: str = Field(
        description="name of the model at `url`; without a url a folder or hub id, which the run serves, or policy: "
        "the model that is trained"
    )
    url: str | None = Field(
        None, description="address of an endpoint of the OpenAI API; several with commas are asked in turn"
    )
    api_key_env: str | None = Field(None, description="environment variable with the API key of `url`")
    max_context: Annotated[int, Unset("model.max_context")] = Field(
        0, ge=0, description="maximum tokens of prompt and reply, for a model that the run serves"
    )
    temperature: float = Field(0.0, ge=0, le=2, description="sampling temperature; at 0 equal requests are made once")
    max_tokens: int = Field(1024, ge=1, description="maximum tokens of a reply")
    timeout_s: float = Field(300.0, gt=0, description="deadline for a reply, with the wait for a free connection")
    concurrency: int = Field(64, ge=1, description="maximum requests at once")
    retries: int = Field(2, ge=0, description="how often to ask again after a reply that cannot be used")
    max_calls: int = Field(64, ge=1, description="maximum calls of one episode")
    token_budget: int = Field(
        0, ge=0, description="tokens of prompts and replies that `model` at `url` may use in a run; 0: no limit"
    )

    @property
    def is_served(self) -> bool:
        """True if the run serves the model on an engine of its own."""
        return not self.url and self.model != POLICY

    @property
    def anchored(self) -> RoleKeys:
        """The same keys with an absolute path of a model that the run serves."""
        return self.model_copy(update={"model": anchored_model(self.model)}) if self.is_served else self

    @model_validator(mode="after")
    def reachable(self) -> RoleKeys:
        """Refuse keys without effect."""
        if fault := fault_of_urls(self.url, "api_key_env") if self.url else "":
            raise PydanticCustomError("role", "{fault}", {"fault": fault})
        if self.api_key_env and not self.url:
            raise PydanticCustomError("role", "has an api_key_env without a url: leave it out")
        if self.max_context and not self.is_served:
            raise PydanticCustomError("role", "has a max_context, which is for models that the run serves: set it to 0")
        idle = [key for key in ENDPOINT_KEYS if self.differs(key)]
        if idle and not self.url:
            raise PydanticCustomError("role", "has a {key}, which is for endpoints: leave it out", {"key": idle[0]})
        return self


class EnvRolloutKeys(Section):
    """The keys of `rollout` that one environment may have of its own."""

    max_tokens: int | None = Field(None, ge=1, description="maximum new tokens per turn")
    max_turns: int | None = Field(None, ge=1, description="maximum turns per episode")
    episode_timeout_s: float | None = Field(None, gt=0, description="deadline for an episode")
    turn_timeout_s: float | None = Field(None, gt=0, description="deadline for a generation")
    concurrency: int | None = Field(None, ge=1, description="maximum episodes at once")


class EnvSection(PluginSection):
    """An environment, and its own keys. A run has one or several."""

    name: str = Field(
        "math",
        description="environment: a name, owner/name[@version], package:Class, ./file.py[:Class] or ./folder; several: "
        "math:2,guess:1",
    )
    alias: Annotated[str | None, Unset("its name")] = Field(
        None, description="label of the environment in records and metrics"
    )
    weight: float = Field(
        1.0, gt=0, le=MOST, description="share of the groups, relative to the weights of the other environments"
    )
    python: Annotated[
        Path | None, AfterValidator(lambda python: python and expanded(python)), Unset("that of agentrl")
    ] = Field(None, description="interpreter that runs the environment, such as VENV/bin/python")
    rollout: Annotated[EnvRolloutKeys | None, Unset("those of the run")] = Field(
        None, description="own keys of rollout: max_tokens, max_turns, concurrency and deadlines, as in {max_turns = 4}"
    )

    roles: Annotated[dict[str, RoleKeys] | None, Unset("those of the run")] = Field(
        None, description='own roles, in place of those of the run: roles = {judge = {url = "...", model = "..."}}'
    )

    @field_validator("name")
    @classmethod
    def without_credentials(cls, name: str) -> str:
        """Refuse a URL with a user name or password: a run stores the names of its environments."""
        if has_credentials(name):
            raise PydanticCustomError(
                "credentials",
                "has a user name or password in its URL, which the run would store: leave them out. AGENTRL_ENV_TOKEN "
                "is the token of agentrl://; for other servers let a proxy add what they ask for",
            )
        return name

    @property
    def label(self) -> str:
        """The name of the environment in the records of the run."""
        is_path = self.name.startswith((".", "/", "~")) or ".py" in self.name
        return self.alias or (Path(self.name).stem if is_path else self.name)


def _distinct(envs: tuple[EnvSection, ...]) -> tuple[EnvSection, ...]:
    check_labels([env.label for env in envs])
    return envs


class AlgorithmSection(PluginSection):
    """How rewards become advantages, and the loss; the algorithm's own keys."""

    name: str = Field("grpo", description="algorithm: a name, package:Class or ./file.py[:Class]")


class ModelSection(Section):
    """The model to train."""

    name: Annotated[str, Unset("SmolLM2-135M-Instruct without a GPU, else Qwen/Qwen2.5-0.5B-Instruct")] = Field(
        "", description="model: a folder, a checkpoint, a run or a hub id"
    )
    dtype: Annotated[DType, Unset("bfloat16, or float32 on a CPU that only emulates bfloat16")] = Field(
        "auto", description="compute type"
    )
    max_context: int = Field(
        1024, gt=0, description="maximum length of a sequence in tokens, prompt and answers together"
    )
    gradient_checkpointing: Annotated[bool | None, Unset("false, or true if the learner fits only so")] = Field(
        None, description="recompute activations in the backward pass to save memory"
    )


SHARES: dict[Place, float] = {"colocate": 0.45, "separate": 0.9}
"""The share of a GPU's memory that an engine uses, by its place."""


class EngineSection(Section):
    """The sampling engines."""

    count: Annotated[int, FOR_MACHINE] = Field(0, ge=0, description="number of engines")
    tensor_parallel: Annotated[int, Unset("1, or the lowest at which the model fits")] = Field(
        0, ge=0, description="GPUs over which each layer of an engine is split"
    )
    pipeline_parallel: int = Field(1, ge=1, description="groups of such GPUs over which an engine's layers are divided")
    threads: Annotated[int, FOR_MACHINE] = Field(0, ge=0, description="CPU threads per engine")
    kv_cache_gib: Annotated[float, FOR_MACHINE] = Field(0.0, ge=0, description="KV cache of a CPU engine in GiB")
    gpu_memory_utilization: Annotated[float, Unset("0.45 when colocated, else 0.9")] = Field(
        0.0, ge=0, le=0.95, description="share of a GPU's memory that an engine uses"
    )
    max_num_seqs: int = Field(256, gt=0, le=8192, description="maximum sequences that an engine samples at once")
    enforce_eager: Annotated[bool | None, Unset("true on a CPU, which starts three times faster, else false")] = Field(
        None, description="do not compile the model"
    )
    prefix_caching: bool = Field(True, description="keep the KV cache of shared prefixes")
    placement: Annotated[Literal["auto", Place], FOR_MACHINE] = Field(
        "auto", description="colocate: share the learner's GPUs and sleep while it trains; separate: use other GPUs"
    )
    nodes: Annotated[str, Unset("any node")] = Field(
        "", description="name of a resource of Ray: run engines on nodes that have it (ray start --resources)"
    )
    vllm: dict[str, Any] = Field(
        default_factory=dict,
        description="more options of vLLM's AsyncEngineArgs, such as {max_num_batched_tokens = 8192}",
    )
    start_timeout_s: float = Field(600.0, gt=0, description="deadline for an engine to start")
    restarts: int = Field(
        5,
        ge=0,
        description="stop the run after more deaths of engines or workers; a machine's within a minute are one",
    )

    @property
    def gpus(self) -> int:
        """The GPUs of each engine, of a section that may not be resolved."""
        return max(1, self.tensor_parallel) * self.pipeline_parallel

    @property
    def alone(self) -> EngineSection:
        """The keys of the engine of a role or a judge: one, on a GPU that it has alone.

        A share for engines that colocate is one beside a learner, and says nothing about that GPU.
        """
        is_shared = self.placement == "colocate"
        share = SHARES["separate"] if is_shared else self.gpu_memory_utilization
        one = {"count": 1, "tensor_parallel": 1, "pipeline_parallel": 1}
        return self.model_copy(update={**one, "placement": "separate", "gpu_memory_utilization": share})


class RolloutSection(Section):
    """How tasks become trajectories."""

    prompts: int = Field(8, ge=1, description="tasks (groups) per batch")
    curriculum: Literal["none", "solve_rate"] = Field(
        "none",
        description="none: each epoch visits every task; solve_rate: more often those that are sometimes solved",
    )
    group_size: int = Field(8, ge=1, description="episodes per task")
    max_tokens: Annotated[int, Unset("24 for the embedded model, else 512")] = Field(
        0, ge=0, description="maximum new tokens per turn"
    )
    max_turns: Annotated[int, Unset("the environment's own limit")] = Field(
        0, ge=0, description="maximum turns per episode"
    )
    # Below 0.01 vLLM samples at 0.01 all the same, and the learner would score another distribution.
    temperature: float = Field(1.0, ge=0.01, le=10, description="sampling temperature in training")
    max_staleness: int = Field(0, ge=0, description="maximum age of a trained token in updates; 0: synchronous")
    on_stale: Literal["drop", "wait"] = Field(
        "drop", description="drop: discard samples older than max_staleness; wait: train groups in dispatch order"
    )
    workers: int = Field(1, ge=1, description="rollout worker processes")
    nodes: Annotated[str, Unset("any node")] = Field(
        "", description="name of a resource of Ray: run workers on nodes that have it (ray start --resources)"
    )
    concurrency: Annotated[int, Unset("no limit")] = Field(
        0, ge=0, description="maximum episodes of an environment at once, in training and evaluation together"
    )
    episode_timeout_s: float = Field(600.0, gt=0, description="deadline for an episode")
    turn_timeout_s: float = Field(300.0, gt=0, description="deadline for a generation")
    max_invalid: float = Field(
        0.5, gt=0, le=1, description="stop the run when more than this share of a batch's samples is invalid"
    )

    @property
    def samples(self) -> int:
        """The samples of a batch."""
        return self.prompts * self.group_size


class RewardModelKeys(Section):
    """One entry of `reward.models`: a reward model that the run asks at `url`, or serves itself from `model`."""

    name: str = Field(description="name of its signal")
    url: str | None = Field(
        None,
        description="address of `agentrl serve-rm`, of OpenRLHF's /get_reward, or of the endpoint of a judge; several "
        "with commas are asked in turn",
    )
    model: str | None = Field(
        None,
        description="a folder or hub id of a model that the run serves itself; with judge true also policy: the model "
        "that is trained",
    )
    weight: float = Field(1.0, description="weight of its signal")
    scope: Literal["episode", "turn"] = Field("episode", description="turn: score the conversation after each turn")
    token_env: str | None = Field(None, description="environment variable with the token of `url`")
    judge: str | bool | None = Field(
        None, description="name of a chat model at `url` that writes a score; true: `model` is the chat model"
    )
    max_context: Annotated[int, Unset("model.max_context")] = Field(
        0, ge=0, description="maximum tokens of prompt and answer of a judge that the run serves"
    )
    prompt: str | None = Field(None, description="prompt of the judge, with {conversation}")
    pattern: str | None = Field(None, description="pattern (RE2) whose group is the score in the judge's answer")
    bounds: tuple[float, float] = Field((0.0, 10.0), description="least and greatest score of the judge")
    max_tokens: int = Field(1024, ge=1, description="maximum tokens of the judge's answer")

    @property
    def is_openrlhf(self) -> bool:
        """Whether `url` takes rendered text, in the form of OpenRLHF."""
        return all(url.endswith("/get_reward") for url in listed(self.url or ""))

    @property
    def is_sampled(self) -> bool:
        """Whether the model is a judge on engines of the run, of its own or of the policy."""
        return bool(self.judge and self.model)

    @property
    def has_engine(self) -> bool:
        """Whether the model is a judge that the run serves on an engine of its own."""
        return self.is_sampled and self.model != POLICY

    @property
    def is_loaded(self) -> bool:
        """Whether the run loads the model for this: in a process of its own, or on an engine of its own."""
        return bool(self.model) and (self.has_engine or not self.judge)

    @property
    def anchored(self) -> RewardModelKeys:
        """The same keys with an absolute path of the model."""
        if not self.is_loaded:
            return self
        return self.model_copy(update={"model": anchored_model(self.model or "")})

    def is_same(self, other: RewardModelKeys) -> bool:
        """Return whether the other is the same reward model, if at another address of the same form."""
        is_alike = (bool(self.url), self.is_openrlhf) == (bool(other.url), other.is_openrlhf)
        return is_alike and self.anchored == other.anchored.model_copy(
            update={"url": self.url, "token_env": self.token_env}
        )


def _fault(keys: RewardModelKeys) -> str:
    """Return why a reward model cannot be asked, "" if it can."""
    faults = {
        "needs either a url or a model": bool(keys.url) == bool(keys.model),
        "has the name of a judge without a url: set judge to true to serve `model`": isinstance(keys.judge, str)
        and not keys.url,
        "has judge true with a url: write the name of the model there": keys.judge is True and bool(keys.url),
        "has a max_context, which is for a judge that the run serves": bool(keys.max_context) and not keys.has_engine,
        "has a prompt or pattern without a judge": bool(keys.prompt or keys.pattern) and not keys.judge,
        "has bounds without a judge": keys.differs("bounds") and not keys.judge,
        "has max_tokens without a judge": keys.differs("max_tokens") and not keys.judge,
        "has a token_env without a url": bool(keys.token_env) and not keys.url,
        "has the scope turn, which /get_reward does not serve": keys.scope == "turn" and keys.is_openrlhf,
    }
    fault_of_url = fault_of_urls(keys.url, "token_env") if keys.url else ""
    return next((fault for fault, is_met in faults.items() if is_met), fault_of_url)


def _askable(models: tuple[RewardModelKeys, ...]) -> tuple[RewardModelKeys, ...]:
    """Refuse models that cannot be asked, or that share a name: their signals could not be told apart."""
    for keys in models:
        if fault := _fault(keys):
            raise PydanticCustomError("reward_model", "{name} {fault}", {"name": repr(keys.name), "fault": fault})
    if len({keys.name for keys in models}) < len(models):
        raise PydanticCustomError("twice", "names two models alike: their signals could not be told apart")
    return models


class RewardSection(Section):
    """Reward models, whose scores are signals beside those of the environment."""

    models: Annotated[tuple[RewardModelKeys, ...], AfterValidator(_askable)] = Field(
        (), description='reward models, as in [{name = "helpful", model = "./rm", weight = 0.5}]'
    )
    placement: Annotated[Place | None, Unset("separate, or what the key placement says")] = Field(
        None,
        description="separate: models that the run serves have GPUs of their own; colocate: they use those of the "
        "learner's ranks, one after the other, and stay there",
    )
    threads: int = Field(1, ge=1, description="CPU threads of each model that the run serves")
    gpus: Annotated[float, Unset("1 with device cuda")] = Field(
        0.0, ge=0, description="GPUs of each model that the run serves, if it has its own"
    )
    nodes: Annotated[str, Unset("any node")] = Field(
        "",
        description="name of a resource of Ray: run served models on nodes that have it (ray start --resources)",
    )
    score_timeout_s: float = Field(120.0, gt=0, description="deadline for a score, once its request has been sent")

    @property
    def served(self) -> tuple[RewardModelKeys, ...]:
        """The models that the run serves itself in processes of their own: all but judges, which engines serve."""
        return tuple(model for model in self.models if model.model and not model.judge)

    @property
    def is_shared(self) -> bool:
        """Whether served models use the GPUs of the learner's ranks."""
        return self.placement == "colocate" and bool(self.served)

    @property
    def each(self) -> float:
        """The GPUs of each served model that has its own."""
        return self.gpus or 1.0

    @property
    def on_gpu(self) -> int:
        """How many served models share a GPU that is their own."""
        return max(1, math.floor(1 / self.each + 1e-9))

    @property
    def groups(self) -> list[float]:
        """The GPUs of each served model, or of those that share one; none if the learner's ranks share theirs."""
        own = 0 if self.is_shared else len(self.served)
        return [max(1.0, self.each)] * -(-own // self.on_gpu)

    @property
    def judges(self) -> tuple[RewardModelKeys, ...]:
        """The judges on engines of the run."""
        return tuple(model for model in self.models if model.is_sampled)


MICRO_BATCH_TOKENS = {"cpu": 2048, "cuda": 4096}
"""By device: on a CPU more tokens per micro-batch cost memory and bring no speed."""


class LearnerSection(Section):
    """The optimizer and its processes."""

    ranks: Annotated[int, FOR_MACHINE] = Field(0, ge=0, description="learner processes (with GPUs, one GPU each)")
    zero_stage: Annotated[Literal[0, 1, 2, 3] | None, Unset("0, or the lowest at which the learner fits")] = Field(
        None, description="DeepSpeed ZeRO stage"
    )
    sequence_parallel: int = Field(
        1, ge=1, description="ranks that share the tokens of each micro-batch, for long sequences (Ulysses); 1: none do"
    )
    tensor_parallel: int = Field(
        1,
        ge=1,
        description="ranks that share each weight matrix, for models whose layers are too large for one GPU (ZeRO "
        "stage up to 2); 1: none do",
    )
    offload: bool = Field(False, description="keep optimizer state in CPU memory (ZeRO stage 1 and up, on GPUs)")
    threads: Annotated[int, FOR_MACHINE] = Field(0, ge=0, description="CPU threads per rank")
    optimizer: Literal["adamw", "muon", "adamw_8bit"] = Field(
        "adamw",
        description="muon: Muon for hidden matrices, AdamW for the rest; adamw_8bit: AdamW with 8-bit state",
    )
    lr: Annotated[float, Unset("4e-5 for the embedded model, else 1e-6, ten times that with LoRA")] = Field(
        0.0, ge=0, le=1, description="peak learning rate"
    )
    warmup_steps: int = Field(0, ge=0, description="steps of linear warm-up")
    schedule: Literal["constant", "linear", "cosine"] = Field("linear", description="learning rate after the warm-up")
    min_lr_ratio: float = Field(0.1, ge=0, le=1, description="final learning rate as a share of the peak")
    weight_decay: float = Field(
        0.0, ge=0, le=1, description="decoupled weight decay; norms, biases and embeddings have none"
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="first moment of AdamW")
    beta2: float = Field(0.95, ge=0, lt=1, description="second moment of AdamW")
    max_grad_norm: float = Field(1.0, gt=0, description="clip gradients to this global norm")
    updates_per_batch: int = Field(1, ge=1, description="optimizer steps per epoch over a batch")
    epochs: Annotated[int, Unset("1, or what the algorithm needs")] = Field(0, ge=0, description="epochs over a batch")
    micro_batch_tokens: Annotated[int, Unset("2048 on a CPU, 4096 on a GPU")] = Field(
        0, ge=0, description="maximum tokens in one forward pass of a rank"
    )
    ema: float = Field(
        0.0, ge=0, lt=1, description="decay of an average of the policy (EMA), saved with checkpoints; 0: none"
    )
    deterministic: bool = Field(
        True,
        description="on GPUs: compute updates by operations that give the same digits again, so that a run can be "
        "replayed",
    )
    nodes: Annotated[str, Unset("any node")] = Field(
        "", description="name of a resource of Ray: run ranks on nodes that have it (ray start --resources)"
    )
    deepspeed: dict[str, Any] = Field(
        default_factory=dict,
        description="more options of DeepSpeed's zero_optimization, such as {reduce_bucket_size = 100000000}",
    )
    start_timeout_s: float = Field(600.0, gt=0, description="deadline for the ranks to start")
    step_timeout_s: float = Field(1800.0, gt=0, description="deadline for a learner step")

    @property
    def stage(self) -> int:
        """The ZeRO stage, of a section that may not be resolved."""
        return self.zero_stage or 0

    @property
    def groups(self) -> int:
        """The ranks, or groups of them, that divide a batch among each other."""
        return self.ranks // self.sharers

    @property
    def replicas(self) -> int:
        """The ranks that divide gradients and the optimizer's state of the same weights (ZeRO)."""
        return self.ranks // self.tensor_parallel

    @property
    def sharers(self) -> int:
        """The ranks of a group: those that share micro-batches, or weight matrices."""
        return self.sequence_parallel * self.tensor_parallel

    @property
    def parameter_offload(self) -> dict[str, Any]:
        """DeepSpeed's options of parameters in CPU memory (`offload_param`); empty if they are on the device."""
        options = self.deepspeed.get("offload_param")
        if self.stage < 3 or not isinstance(options, dict):
            return {}
        return options if options.get("device") == "cpu" else {}

    @property
    def passes(self) -> int:
        """The epochs, of a section that may not be resolved."""
        return self.epochs or 1

    @property
    def updates(self) -> int:
        """Optimizer steps per batch."""
        return self.passes * self.updates_per_batch


ALL_LINEAR = "all-linear"


class LoraSection(Section):
    """Adapters that are trained in place of the model's weights (LoRA)."""

    rank: int = Field(0, ge=0, le=512, description="rank of the adapters; 0: train all weights")
    alpha: Annotated[float, Unset("twice the rank")] = Field(
        0.0, ge=0, description="scale of the adapters: they are multiplied by lora.alpha / lora.rank"
    )
    targets: str = Field(
        ALL_LINEAR,
        description="linear layers of the model's blocks that get adapters: names separated by commas, such as q_proj "
        "or mlp.down_proj; all-linear: all of them",
    )
    load_in_4bit: bool = Field(False, description="keep the frozen weights in 4 bits (QLoRA, NF4)")
    publish: Annotated[
        Literal["auto", "adapter", "merged"],
        Unset("merged in 4 bits and on CPUs, where vLLM computes adapters slowly, else adapter"),
    ] = Field("auto", description="what the engines receive: the adapter, or the weights with the adapter added")

    @property
    def layers(self) -> list[str]:
        """The names in `targets`; empty for all linear layers."""
        return [] if self.targets == ALL_LINEAR else [name.strip() for name in self.targets.split(",")]


CRITIC_LR = 1e-5


class CriticSection(Section):
    """The critic of algorithms that have one (ppo); it is updated as often as the policy, with the same optimizer."""

    model: Annotated[str, Unset("the initial weights of the policy")] = Field(
        "", description="initial weights of the critic: a folder or a hub id, such as a reward model"
    )
    lr: Annotated[float, Unset("1e-5, or learner.lr if that is higher")] = Field(
        0.0, ge=0, le=1, description="peak learning rate of the critic"
    )
    zero_stage: Annotated[Literal[0, 1, 2, 3] | None, Unset("same as learner.zero_stage")] = Field(
        None, description="DeepSpeed ZeRO stage of the critic"
    )
    placement: Annotated[Place | None, Unset("colocate, or what the key placement says")] = Field(
        None,
        description="colocate: the critic shares the learner's ranks; separate: it has ranks of its own, and learns "
        "while the policy does",
    )
    ranks: Annotated[int, Unset("as many as learner.ranks")] = Field(
        0, ge=0, description="processes of a separate critic (with GPUs, one GPU each)"
    )
    nodes: Annotated[str, Unset("any node")] = Field(
        "", description="name of a resource of Ray: run a separate critic on nodes that have it (ray start --resources)"
    )
    warmup_steps: int = Field(0, ge=0, description="first steps in which only the critic learns")
    clip_value: float = Field(0.2, ge=0, description="clip of values around the old ones in the value loss; 0: none")

    def optimizer(self, learner: LearnerSection) -> LearnerSection:
        """Return the keys of the critic's optimizer: the learner's, but for the critic's own."""
        stage = learner.stage if self.zero_stage is None else self.zero_stage
        own = {"lr": self.lr or max(CRITIC_LR, learner.lr), "ranks": self.separate_ranks(learner) or learner.ranks}
        return learner.model_copy(update={**own, "zero_stage": stage, "offload": learner.offload and stage > 0})

    def separate_ranks(self, learner: LearnerSection) -> int:
        """Return the number of the critic's own ranks, 0 if it shares the learner's."""
        return (self.ranks or learner.ranks) if self.placement == "separate" else 0

    def layout(self, learner: LearnerSection) -> str:
        """Return the division of an update over processes, which decides its last digits."""
        own = self.optimizer(learner)
        critic = f", critic on {own.ranks} ranks" if own.ranks != learner.ranks else ""
        critic += f", critic at {own.stage}" if own.stage != learner.stage else ""
        shared = f", {learner.sequence_parallel} to a micro-batch" if learner.sequence_parallel > 1 else ""
        shared += f", {learner.tensor_parallel} to a matrix" if learner.tensor_parallel > 1 else ""
        return f"{learner.ranks} x {learner.threads} threads{shared} at ZeRO stage {learner.stage}{critic}"


class ScorersSection(Section):
    """The frozen models that score a batch before its update: reference and teacher, but no reward models."""

    placement: Annotated[Place | None, Unset("colocate, or what the key placement says")] = Field(
        None,
        description="colocate: reference and teacher share the learner's ranks; separate: they have a process of their "
        "own, with one more GPU",
    )
    nodes: Annotated[str, Unset("any node")] = Field(
        "", description="name of a resource of Ray: run scorers on nodes that have it (ray start --resources)"
    )
    offload: bool = Field(
        False,
        description="keep reference, teacher and the critic's optimizer state in CPU memory while they wait (on GPUs)",
    )


class WeightsSection(Section):
    """How new weights reach the engines."""

    transfer: Annotated[Literal["auto", "shm", "nccl", "ipc"], Unset("shm on CPUs, ipc or nccl on GPUs")] = Field(
        "auto", description="transport of weights from the learner to the engines"
    )
    bucket_mib: int = Field(64, ge=1, le=16_384, description="size of a transfer bucket")
    verify: bool = Field(
        True, description="compare logprobs after every publication (canary); tensors are hashed in any case"
    )
    canary_tolerance: Annotated[float, Unset("1e-4 in float32; measured before the first step in bfloat16")] = Field(
        0.0, ge=0, description="maximum difference of a logprob"
    )
    publish_timeout_s: float = Field(300.0, gt=0, description="deadline for a publication")


class EvalSection(Section):
    """Evaluation on held-out tasks."""

    every: Annotated[int, Unset("before and after the run only")] = Field(
        0, ge=0, description="steps between evaluations during the run"
    )
    tasks: int = Field(64, ge=0, description="held-out tasks; 0: no evaluation")
    samples: int = Field(16, ge=1, description="samples per task")
    temperature: float = Field(1.0, ge=0, le=10, description="sampling temperature in evaluation")
    k: Annotated[int, Unset("same as eval.samples")] = Field(0, ge=0, description="k of pass@k")


class CheckpointSection(Section):
    """Checkpoints."""

    every: int = Field(10, ge=0, description="steps between checkpoints; 0: at the end only")
    keep: int = Field(
        2, ge=1, description="number of newest checkpoints to keep, besides the one with the best evaluation"
    )


class TrackSection(Section):
    """Where metrics go besides metrics.jsonl."""

    tensorboard: bool = Field(True, description="write TensorBoard files into the run folder")
    wandb: bool = Field(False, description="log to Weights & Biases too (needs an account)")
    wandb_project: str = Field("agentrl", description="Weights & Biases project")


class Config(Section):
    """One run."""

    out: Annotated[Path | None, AfterValidator(lambda out: out and expanded(out)), Unset("runs/<env>-<time>")] = Field(
        None, description="run folder"
    )
    seed: int = Field(0, ge=0, lt=2**32, description="seed of tasks, groups, environment randomness and sampling")
    steps: int = Field(40, ge=1, description="number of training steps (batches)")
    device: Annotated[Device, Unset("cuda where there is a GPU, else cpu")] = Field(
        "auto", description="device of engines and learner"
    )
    placement: Annotated[Literal["auto", Place], Unset("what each role's own key says")] = Field(
        "auto",
        description="colocate or separate: the place of engines, scorers, critic and reward models whose own key "
        "(engine.placement and so on) is not set; auto leaves each role to its own key",
    )
    env_lock: Annotated[Path | None, AfterValidator(lambda lock: lock and expanded(lock)), Unset("none")] = Field(
        None, description="file of `agentrl env lock` that environment and packages must match"
    )
    roles: dict[str, RoleKeys] = Field(
        default_factory=dict, description="models that play the roles of environments, as in roles.judge.url"
    )
    env: Annotated[tuple[EnvSection, ...], AfterValidator(_distinct)] = Field(
        default_factory=lambda: (EnvSection(),), description="one environment, or several"
    )
    model: ModelSection = Field(default_factory=ModelSection)
    engine: EngineSection = Field(default_factory=EngineSection)
    rollout: RolloutSection = Field(default_factory=RolloutSection)
    algorithm: AlgorithmSection = Field(default_factory=AlgorithmSection)
    reward: RewardSection = Field(default_factory=RewardSection)
    learner: LearnerSection = Field(default_factory=LearnerSection)
    lora: LoraSection = Field(default_factory=LoraSection)
    critic: CriticSection = Field(default_factory=CriticSection)
    scorers: ScorersSection = Field(default_factory=ScorersSection)
    weights: WeightsSection = Field(default_factory=WeightsSection)
    eval: EvalSection = Field(default_factory=EvalSection)
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)
    track: TrackSection = Field(default_factory=TrackSection)

    @field_validator("env", mode="before")
    @classmethod
    def environments(cls, value: Any) -> Any:
        """Accept one environment in place of a list."""
        return tables(value)

    def roles_of(self, env: EnvSection) -> dict[str, RoleKeys]:
        """Return the roles that are set for an environment: the run's, but for its own."""
        return self.roles | (env.roles or {})

    @property
    def role_models(self) -> dict[str, int]:
        """The models that play roles or judge on engines of their own, with their contexts."""
        roles = [keys for env in self.env for keys in self.roles_of(env).values() if keys.is_served]
        asked = [(keys.model, keys.max_context) for keys in roles]
        asked += [(keys.model or "", keys.max_context) for keys in self.reward.judges if keys.has_engine]
        found: dict[str, int] = {}
        for model, max_context in asked:
            found[model] = max(found.get(model, 0), max_context or self.model.max_context)
        return found

    def rollout_of(self, env: EnvSection) -> RolloutSection:
        """Return the keys of `rollout` for an environment: the run's, but for its own."""
        own = env.rollout.model_dump(exclude_none=True) if env.rollout else {}
        return self.rollout.model_copy(update=own)
