"""All checks, in the order in which they run: what is quick and needs few packages first."""

from __future__ import annotations

from verification.check import Check, Needs

FLASH = (8, 0)
"""The least compute capability of flash attention."""
LEARNER = ("torch", "transformers", "deepspeed")
ENGINE = ("torch", "transformers", "vllm")
RUN = (*LEARNER, "vllm", "ray")


def _learner(name: str, proves: str, *, gpus: int = 1, function: str = "", packages: tuple[str, ...] = ()) -> Check:
    target = f"verification.learner:{function or name.replace('-', '_')}"
    return Check(name, target, proves, Needs(gpus, packages=(*LEARNER, *packages)))


def _run(name: str, target: str, proves: str, gpus: int = 1, packages: tuple[str, ...] = ()) -> Check:
    return Check(name, f"verification.{target}", proves, Needs(gpus, packages=(*RUN, *packages)), deadline_s=480.0)


def _engine(name: str, function: str, proves: str, gpus: int = 1, packages: tuple[str, ...] = ()) -> Check:
    needs = Needs(gpus, packages=(*ENGINE, *packages))
    return Check(name, f"verification.engines:{function}", proves, needs, deadline_s=360.0)


CHECKS = (
    Check(
        "attention",
        "verification.attention:equality",
        "flash attention of packs has the output and gradients of tiles in float32: trees, windows, groups of heads",
        Needs(capability=FLASH, packages=("torch",)),
    ),
    Check(
        "attention-memory",
        "verification.attention:memory",
        "the memory of attention over 32,768 tokens grows with the tokens, not with their square",
        Needs(capability=FLASH, packages=("torch",)),
    ),
    Check(
        "heads",
        "verification.heads:logits",
        "logits of bfloat16 factors are float32; logprobs and gradients are those of float64",
        Needs(packages=("torch",)),
    ),
    Check("doctor", "verification.runs:doctor", "`agentrl doctor` finds the GPUs", deadline_s=90.0),
    Check(
        "reward-model",
        "verification.reward_model:scores",
        "a reward model on a GPU has the scores of one on the CPU",
        Needs(packages=("torch", "transformers")),
    ),
    _learner("learner", "steps in float32 and bfloat16 are those of the CPU", function="step"),
    _learner("repetition", "a step that is taken again has the same weights to the digit"),
    _learner("zero", "ZeRO stages 0 to 3 on one rank take the same steps"),
    _learner("checkpointing", "gradient checkpointing takes the same steps with less memory"),
    _learner("lora", "steps of adapters are those of the CPU", packages=("peft",)),
    _learner("qlora", "steps of adapters on weights in 4 bits are those of the CPU", packages=("peft", "bitsandbytes")),
    _learner("muon", "steps of Muon are those of the CPU"),
    _learner("adamw-8bit", "steps of AdamW with 8-bit state are close to AdamW's", packages=("bitsandbytes",)),
    _learner("offload", "optimizer state in CPU memory takes the same steps, at ZeRO stages 1 to 3"),
    _learner("parameters-offload", "parameters in CPU memory take the same steps (ZeRO stage 3)"),
    _learner("sharded-reference", "a reference that is divided among the ranks changes no step (ZeRO stage 3)"),
    _learner("scorers-offload", "a reference and a critic that wait in CPU memory change no step"),
    _learner("learner-memory", "memory per parameter, and a peak that grows with the micro-batch", function="memory"),
    Check(
        "plan",
        "verification.plan:rank",
        "a rank takes the memory that is planned, at two sizes of models",
        Needs(capability=FLASH, packages=LEARNER),
        deadline_s=360.0,
    ),
    _learner("nccl", "ZeRO stages 0 to 3 on several ranks take the steps of one rank", gpus=2),
    _learner("sequence-parallel", "two ranks that share micro-batches take the steps of one", gpus=2),
    _learner("tensor-parallel", "two ranks that share weight matrices take the steps of one", gpus=2),
    _engine("engine", "sampling", "vLLM starts within its memory; sampled logprobs are the learner's"),
    _engine("engine-sleep", "sleep", "sleep gives memory back; the engine samples the same after it wakes"),
    _engine("engine-adapter", "adapter", "adapters are served as they were published", packages=("peft",)),
    _engine("engine-tensor-parallel", "tensor_parallel", "an engine on two GPUs samples as on one", gpus=2),
    _engine("engine-pipeline-parallel", "pipeline_parallel", "layers on two GPUs sample as on one", gpus=2),
    Check(
        "placement",
        "verification.placement:gpus",
        "Ray gives processes a GPU of their own, or one to share",
        Needs(packages=("torch", "ray")),
        deadline_s=240.0,
    ),
    _run("transfer-ipc", "transfers:ipc", "weights reach an engine on the learner's GPU, which takes turns with it"),
    _run("transfer-ipc-sharded", "transfers:ipc_sharded", "the same, an engine on the GPUs of two ranks", gpus=2),
    _run("transfer-nccl", "transfers:nccl", "weights reach an engine on another GPU", gpus=2),
    _run("transfer-nccl-sharded", "transfers:nccl_sharded", "weights reach an engine on two other GPUs", gpus=3),
    _run("run-colocate", "runs:colocated", "a run on one GPU is lawful and can be replayed"),
    _run(
        "run-lora", "runs:colocated_lora", "a run that trains and publishes adapters does the same", packages=("peft",)
    ),
    _run("run-rewards", "runs:rewards", "a run with a reward model on the GPU of engine and learner does the same"),
    _run("run-evaluation", "runs:evaluation", "a model is scored with no learner beside its engines"),
    _run("run-separate", "runs:separate", "a run that samples during updates, on two GPUs, does the same", gpus=2),
    _run("run-scorers", "runs:scorers", "a run with its reference on another GPU does the same", gpus=2),
    _run("run-critic", "runs:critic", "a run with its critic on another GPU does the same", gpus=2),
    _run("run-roles", "runs:roles", "a run with a role's model on another GPU does the same", gpus=2),
)
