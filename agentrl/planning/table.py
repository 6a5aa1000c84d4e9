"""A plan as plain text, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby

from agentrl.config.keys import value_of
from agentrl.config.machine import GIB
from agentrl.config.validate import counted
from agentrl.planning.duration import Load
from agentrl.planning.hardware import LINK_SHARE, MEMORY_SHARE, PREFILL_SHARE, TRAINING_SHARE
from agentrl.planning.need import MARGIN, Fit, Item, Need
from agentrl.planning.plan import Plan
from agentrl.planning.remedy import Change, Remedy

MIB = 1 << 20
LAYOUT = (
    "model.dtype",
    "engine.count",
    "engine.tensor_parallel",
    "engine.pipeline_parallel",
    "engine.placement",
    "learner.ranks",
    "learner.zero_stage",
)
"""The keys that say what the processes of a plan are."""
SHOWN = 3
"""The largest items of a need that the text names."""


def text_of(plan: Plan, chosen: Sequence[Change] = (), found: Sequence[Remedy] = ()) -> str:
    """Return the text of a plan; `chosen` are the values that were left to the plan and make it fit."""
    lines = [*_head(plan, chosen), "", *_memory(plan)]
    if plan.published:
        lines += ["", _published(plan)]
    if plan.seconds:
        lines += ["", *_seconds(plan)]
    lines += ["", *_verdict(plan, found)]
    return "\n".join(lines)


def json_of(plan: Plan, chosen: Sequence[Change] = (), found: Sequence[Remedy] = ()) -> str:
    """Return the same as JSON, in bytes and seconds."""
    needs = [
        asdict(need) | {"phase": need.phase.value, "nbytes": need.nbytes, "fit": need.fit.value} for need in plan.needs
    ]
    critics = plan.config.critic.separate_ranks(plan.config.learner)  # as many as the learner's, if that is not set
    return json.dumps(
        {
            "model": plan.config.model.name,
            "parameters": plan.models.policy.parameters,
            "gpu": plan.hardware.kind.name if plan.config.device == "cuda" else None,
            "gpus": [host.gpus for host in plan.hardware.hosts],
            "layout": {key: value_of(plan.config, key) for key in LAYOUT} | {"critic.ranks": critics},
            "chosen": [str(change) for change in chosen],
            "needs": needs,
            "seconds": {one.phase.value: round(one.seconds, 3) for one in plan.seconds},
            "step_s": round(plan.step_s, 3),
            "published": plan.published,
            "fit": plan.fit.value,
            "remedies": [
                {"nodes": one.nodes, "flags": list(map(str, one.changes)), "fit": one.plan.fit.value} for one in found
            ],
        },
        indent=1,
    )


def _head(plan: Plan, chosen: Sequence[Change]) -> Iterator[str]:
    config, shape, hardware = plan.config, plan.models.policy, plan.hardware
    yield f"{config.model.name}: {_count(shape.parameters)} parameters, {shape.layers} layers, {config.model.dtype}"
    if config.device == "cuda":
        machines = f"{len(hardware.hosts)} machines with " if len(hardware.hosts) > 1 else ""
        numbers = " or ".join(map(str, sorted({host.gpus for host in hardware.hosts}, reverse=True)))
        gpus = f"{numbers} x {hardware.kind.name} of {hardware.gpu_gib:.1f} GiB"
        where = f"on {machines}{gpus}, {config.engine.placement}"
    else:
        where = f"on CPUs with {hardware.host_bytes / GIB:.1f} GiB of memory"
    split = f" of {config.engine.gpus} GPUs" if config.engine.gpus > 1 else ""
    engines = f"{counted(config.engine.count, 'engine')}{split}"
    learner = f"{counted(config.learner.ranks, 'learner rank')} at ZeRO stage {config.learner.stage}"
    if critics := config.critic.separate_ranks(config.learner):
        learner += f", {counted(critics, 'critic rank')}"
    yield f"{engines}, {learner}, {where}" if plan.models.learns else f"{engines}, {where}"
    if chosen:
        yield f"chosen, because the defaults do not fit: {' '.join(map(str, chosen))}"


def _memory(plan: Plan) -> Iterator[str]:
    yield "GiB of each device at the peak of a phase"
    width = max(len(_device(need)) for need in plan.needs)
    for _, needs in groupby(plan.needs, key=_device):
        for number, need in enumerate(needs):
            device = "" if number else _device(need)
            sizes = f"{need.nbytes / GIB:6.1f} of {need.capacity / GIB:6.1f}"
            yield f"{device:<{width}}  {need.phase.value:<11}  {sizes}  {need.fit.value:<12}  {_items(need)}".rstrip()


def _device(need: Need) -> str:
    return f"{need.device} x {need.count}" if need.count > 1 else need.device


def _items(need: Need) -> str:
    largest = sorted(need.items, key=lambda item: -item.nbytes)
    shown = largest if len(largest) <= SHOWN + 1 else largest[:SHOWN]
    rest = sum(item.nbytes for item in largest[len(shown) :])
    shown = [*shown, Item("other", rest)] if rest else shown
    return ", ".join(f"{item.name} {item.nbytes / GIB:.1f}" for item in shown)


def _published(plan: Plan) -> str:
    lora = plan.config.lora
    adapters = f" as adapters of rank {lora.rank} ({lora.targets})" if lora.publish == "adapter" else ""
    return f"each publication: {plan.published / MIB:,.1f} MiB{adapters}"


def _seconds(plan: Plan) -> Iterator[str]:
    load = Load.of(plan.config, plan.prompt_tokens)
    yield f"seconds of a step: {load.sequences} samples, {load.prompt} tokens of prompt and {load.response} of response"
    phases = "  ".join(f"{one.phase.value} {one.seconds:.1f}" for one in plan.seconds)
    together = "in part at the same time" if plan.config.rollout.max_staleness else "one after the other"
    yield f"{phases}  together {plan.step_s:.1f}, {together}"
    kind = plan.hardware.kind
    flops, memory, link = kind.flops / 1e12, kind.memory_rate / 1e12, kind.link_rate / 1e9
    yield f"by the {kind.source}: {flops:.0f} TFLOP/s, {memory:.2f} TB/s, links of {link:.0f} GB/s, of which training"
    shares = (TRAINING_SHARE, PREFILL_SHARE, MEMORY_SHARE, LINK_SHARE)
    yield "reaches {:.0%}, prompts {:.0%}, memory {:.0%} and links {:.0%}".format(*shares)


def _verdict(plan: Plan, found: Sequence[Remedy]) -> Iterator[str]:
    if plan.fit is Fit.EXCEEDS:
        yield f"{plan.fit.value}: {', '.join(need.device for need in plan.exceeding)}"
        yield from (remedy.advice for remedy in found)
        if not found:
            yield "none of the settings that were tried fits (docs/plan.md says which they are)"
    elif plan.fit is Fit.TIGHT:
        yield f"{plan.fit.value}: it may run out of memory, because the estimate may be off by {MARGIN:.0%}"
    else:
        yield plan.fit.value


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f}B" if parameters >= 1e9 else f"{parameters / 1e6:.0f}M"
