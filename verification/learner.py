"""Steps of the learner on GPUs: loss, gradient and weights, against the CPU or against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentrl.config.schema import AlgorithmSection, LearnerSection, LoraSection, ScorersSection
from agentrl.learner.spec import LearnerSpec
from agentrl.types import SampleId
from tests.unit.learner.synthetic import batch, sequence
from verification.check import BoundError, Setting, largest, within
from verification.memory import MIB
from verification.models import deep, small
from verification.ranks import Batch, Trained, trained

STEPS: tuple[Batch, ...] = tuple(batch(3, 4, seed) for seed in range(3))
FLOAT32, BFLOAT16, FOUR_BITS = 1e-4, 0.1, 0.1
"""Bounds of a difference: relative for loss and gradient norm, in nats for a logprob after three steps."""
STAGES = (0, 1, 2, 3)
BYTES_PER_PARAMETER = 20
"""Bound for float32 weights, two moments of AdamW, and a gradient that may be kept: 16."""
PEAK = 1.15
"""Bound of a peak, as a multiple of what a straight line through two smaller ones gives."""
TOKENS, LENGTH = 8192, 512
REPEATED = 2048
"""Tokens of a micro-batch of the steps that are taken twice."""


@dataclass(frozen=True)
class Difference:
    """How far two learners are apart: loss and gradient norm of any step, and logprobs after the last."""

    loss: float
    norm: float
    logprob: float

    @classmethod
    def of(cls, found: Trained, expected: Trained) -> Difference:
        """Return the largest differences."""
        return cls(
            largest(_relative(found.losses, expected.losses)),
            largest(_relative(found.norms, expected.norms)),
            largest(abs(one - other) for one, other in zip(found.after, expected.after, strict=True)),
        )

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.1e}, gradient norm {self.norm:.1e}, logprobs after {len(STEPS)} steps {self.logprob:.1e}"
        )


def _relative(found: Sequence[float], expected: Sequence[float]) -> list[float]:
    return [abs(one - other) / max(abs(other), 0.1) for one, other in zip(found, expected, strict=True)]


def _close(what: str, found: Trained, expected: Trained, bound: float) -> Difference:
    """Return the differences of two learners. Raises BoundError if one of them, or nothing was learned."""
    difference = Difference.of(found, expected)
    for name in ("loss", "norm", "logprob"):
        within(f"{what}: the difference of the {name}", getattr(difference, name), bound)
    if found.before == found.after:
        raise BoundError(f"{what}: {len(STEPS)} steps changed no logprob")
    return difference


def spec(model: Path, device: str, dtype: str = "float32", **learner: Any) -> LearnerSpec:
    """Return a learner with a high rate and small micro-batches."""
    fields = {"lr": 1e-3, "schedule": "constant", "micro_batch_tokens": 64, "step_timeout_s": 120, **learner}
    return LearnerSpec(model, 10, dtype=dtype, device=device, learner=LearnerSection.model_validate(fields))


def step(setting: Setting) -> str:
    """Compare steps in float32 and bfloat16 with those in float32 on the CPU."""
    model = small(setting.folder / "model")
    sides = (("cpu", "float32"), (setting.device, "float32"), (setting.device, "bfloat16"))
    exact, same, rounded = trained([spec(model, *side) for side in sides], STEPS, setting.folder)
    wide, narrow = _close("float32", same, exact, FLOAT32), _close("bfloat16", rounded, exact, BFLOAT16)
    return f"against float32 on the CPU, float32: {wide} (bound {FLOAT32:g}); bfloat16: {narrow} (bound {BFLOAT16:g})"


def repetition(setting: Setting) -> str:
    """Take the same steps in two processes, as a run and its replay do: all losses, norms and logprobs are equal.

    Branches share the prefixes of the first batches; sequences of the last have several blocks of keys.
    """
    one = spec(small(setting.folder / "model"), setting.device, "bfloat16", micro_batch_tokens=REPEATED)
    batches = (*STEPS, *[rows(REPEATED)] * 2)
    [once], [again] = (trained([one], batches, setting.folder) for _ in range(2))
    _close("the second time", again, once, 0.0)
    return (
        f"{len(batches)} steps in bfloat16 by two processes: losses, gradient norms and logprobs are the same numbers"
    )


def zero(setting: Setting) -> str:
    """Compare the ZeRO stages on one rank with stage 0."""
    model = small(setting.folder / "model")
    plain, *others = trained([spec(model, setting.device, zero_stage=stage) for stage in STAGES], STEPS, setting.folder)
    return _stages({f"stage {stage}": one for stage, one in zip(STAGES[1:], others, strict=True)}, plain, "stage 0")


def nccl(setting: Setting) -> str:
    """Compare the ZeRO stages on all GPUs, at most four, with one rank."""
    model, ranks = small(setting.folder / "model"), min(4, max(2, setting.gpus))
    [alone] = trained([spec(model, setting.device)], STEPS, setting.folder)
    specs = [spec(model, setting.device, zero_stage=stage) for stage in STAGES]
    found = trained(specs, STEPS, setting.folder, ranks)
    return _stages(
        {f"stage {stage} on {ranks} ranks": one for stage, one in zip(STAGES, found, strict=True)}, alone, "one rank"
    )


def sequence_parallel(setting: Setting) -> str:
    """Compare two ranks that share micro-batches, without and with ZeRO stage 3 and checkpointing, with one rank."""
    return _shared(setting, "sequence_parallel", 3)


def tensor_parallel(setting: Setting) -> str:
    """Compare two ranks that share weight matrices, without and with ZeRO stage 2 and checkpointing, with one rank."""
    return _shared(setting, "tensor_parallel", 2)


def _shared(setting: Setting, key: str, stage: int) -> str:
    """Compare two ranks that share something, without ZeRO and with a stage and checkpointing, with one rank."""
    model = small(setting.folder / "model")
    [alone] = trained([spec(model, setting.device)], STEPS, setting.folder)
    ranks: dict[str, Any] = {key: 2}
    plain, sharded = (spec(model, setting.device, **ranks, zero_stage=each) for each in (0, stage))
    specs = [plain, replace(sharded, gradient_checkpointing=True)]
    found = trained(specs, STEPS, setting.folder, ranks=2)
    return _stages({"stage 0": found[0], f"stage {stage} with checkpointing": found[1]}, alone, "one rank")


def _stages(found: dict[str, Trained], expected: Trained, what: str) -> str:
    said = (f"{name}: {_close(name, one, expected, FLOAT32)}" for name, one in found.items())
    return f"against {what} in float32, {'; '.join(said)} (bound {FLOAT32:g})"


def lora(setting: Setting) -> str:
    """Compare steps of adapters with those on the CPU."""
    section = LoraSection(rank=8, alpha=16.0, publish="adapter")
    return _against_the_cpu(setting, {"lora": section}, FLOAT32)


def qlora(setting: Setting) -> str:
    """Compare steps of adapters on weights in 4 bits with those on the CPU."""
    section = LoraSection(rank=8, alpha=16.0, publish="merged", load_in_4bit=True)
    return _against_the_cpu(setting, {"lora": section}, FOUR_BITS)


def muon(setting: Setting) -> str:
    """Compare steps of Muon, which computes in bfloat16, with those on the CPU."""
    return _against_the_cpu(setting, {}, BFLOAT16, optimizer="muon")


def _against_the_cpu(setting: Setting, fields: dict[str, Any], bound: float, **learner: Any) -> str:
    model = small(setting.folder / "model")
    sides = [replace(spec(model, device, **learner), **fields) for device in (setting.device, "cpu")]
    found, expected = trained(sides, STEPS, setting.folder)
    return f"against the CPU in float32, {_close('steps', found, expected, bound)} (bound {bound:g})"


def adamw_8bit(setting: Setting) -> str:
    """Compare AdamW with 8-bit state with AdamW: the policy moves alike, and less memory is held."""
    model = deep(setting.folder / "model")
    specs = [spec(model, setting.device, optimizer=name, lr=1e-4) for name in ("adamw", "adamw_8bit")]
    plain, short = trained(specs, STEPS, setting.folder)
    return f"{_close('8 bits', short, plain, BFLOAT16)} (bound {BFLOAT16:g}); {_saved(plain, short)}"


def checkpointing(setting: Setting) -> str:
    """Compare steps with gradient checkpointing with steps without: equal, with a lower peak."""
    model = deep(setting.folder / "model")
    plain = spec(model, setting.device, lr=1e-4, micro_batch_tokens=2048)
    batches = [rows(2048)] * 3
    kept, recomputed = trained([plain, replace(plain, gradient_checkpointing=True)], batches, setting.folder)
    difference = _close("checkpointing", recomputed, kept, FLOAT32)
    if setting.device == "cuda":
        within("the peak with checkpointing, of that without,", recomputed.peak_bytes / kept.peak_bytes, 0.8)
    peaks = f"{recomputed.peak_bytes / MIB:.0f} MiB instead of {kept.peak_bytes / MIB:.0f}"
    return f"{difference} (bound {FLOAT32:g}); peak of a step of 2,048 tokens {peaks}"


def offload(setting: Setting) -> str:
    """Compare optimizer state in CPU memory, at ZeRO stages 1 to 3, with state on the GPU."""
    model = deep(setting.folder / "model")
    kinds: list[dict[str, Any]] = [{"zero_stage": 1}, *({"zero_stage": stage, "offload": True} for stage in STAGES[1:])]
    plain, *others = trained([spec(model, setting.device, lr=1e-4, **kind) for kind in kinds], STEPS, setting.folder)
    found = {f"stage {stage}": one for stage, one in zip(STAGES[1:], others, strict=True)}
    return f"{_stages(found, plain, 'stage 1 without offload')}; {_saved(plain, others[0])}"


def parameters_offload(setting: Setting) -> str:
    """Compare parameters in CPU memory, without and with the optimizer, with ZeRO stage 3 on the GPU."""
    model, moved = deep(setting.folder / "model"), {"deepspeed": {"offload_param": {"device": "cpu"}}}
    kinds: list[dict[str, Any]] = [{}, moved, {**moved, "offload": True}]
    specs = [spec(model, setting.device, lr=1e-4, zero_stage=3, **kind) for kind in kinds]
    plain, alone, both = trained(specs, STEPS, setting.folder)
    said = _stages({"parameters": alone, "parameters and optimizer": both}, plain, "stage 3 on the GPU")
    return f"{said}; {_saved(plain, alone)}, {both.held_bytes / MIB:.0f} with the optimizer"


def sharded_reference(setting: Setting) -> str:
    """Compare steps with a reference of which each rank has a share, at ZeRO stage 3, with those of a whole one."""
    model = small(setting.folder / "model")
    section, more = AlgorithmSection(kl_coef=0.1), {"deepspeed": {"offload_param": {"device": "cpu"}}}
    kinds: list[dict[str, Any]] = [{"zero_stage": 0}, {"zero_stage": 3}, {"zero_stage": 3, **more}]
    specs = [replace(spec(model, setting.device, **kind), algorithm=section) for kind in kinds]
    whole, sharded, moved = trained(specs, STEPS, setting.folder)
    return _stages({"stage 3": sharded, "stage 3 in CPU memory": moved}, whole, "a whole reference")


def scorers_offload(setting: Setting) -> str:
    """Compare a reference and a critic's optimizer state that wait in CPU memory with those that stay on the GPU."""
    model = deep(setting.folder / "model")
    plain = replace(spec(model, setting.device, lr=1e-4), algorithm=AlgorithmSection(name="ppo", kl_coef=0.1))
    waiting = replace(plain, scorers=ScorersSection(offload=True))
    kept, moved = trained([plain, waiting], STEPS, setting.folder)
    return f"{_close('offload', moved, kept, FLOAT32)} (bound {FLOAT32:g}); {_saved(kept, moved)}"


def _saved(plain: Trained, other: Trained) -> str:
    return f"{other.held_bytes / MIB:.0f} MiB held between steps instead of {plain.held_bytes / MIB:.0f}"


def memory(setting: Setting) -> str:
    """Measure memory: bytes per parameter between steps, and a peak that grows with the tokens of a micro-batch."""
    model, budgets = deep(setting.folder / "model"), (TOKENS // 4, TOKENS // 2, TOKENS)
    specs = [spec(model, setting.device, "bfloat16", lr=1e-4, micro_batch_tokens=budget) for budget in budgets]
    found = trained(specs, [rows(TOKENS)] * 3, setting.folder)
    state = within("bytes per parameter", found[0].held_bytes / found[0].parameters, BYTES_PER_PARAMETER)
    least, less, most = (one.peak_bytes for one in found)
    expected = less + 2 * (less - least)  # a straight line through the first two
    within(f"the peak of {TOKENS} tokens, of what those of fewer tokens foretell,", most / max(1, expected), PEAK)
    peaks = ", ".join(
        f"{one.peak_bytes / MIB:.0f} MiB with {budget}" for one, budget in zip(found, budgets, strict=True)
    )
    return f"{state:.1f} bytes per parameter between steps; peak beyond them {peaks} tokens per micro-batch"


def rows(tokens: int) -> Batch:
    """Return sequences of LENGTH tokens without common prefixes, `tokens` in all, whose second half was sampled."""
    half = LENGTH // 2
    ids = [[3 + (7 * number + 11 * place) % 300 for place in range(LENGTH + 1)] for number in range(tokens // LENGTH)]
    mask = [0] * (half + 1) + [1] * half
    advantages = [1.0, -1.0]
    return [
        sequence(SampleId(number, 0), row, mask, [-5.0] * len(row), [advantages[number % 2]] * len(row))
        for number, row in enumerate(ids)
    ]
