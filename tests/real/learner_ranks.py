"""What a learner rank does in test_learner.py: one of the scenarios."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import deepspeed
import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from agentrl.algorithms.driver import assign
from agentrl.algorithms.registry import make_algorithm
from agentrl.algorithms.sample import TrainSequence, attach, samples_of, train_sequences
from agentrl.errors import AgentRLError
from agentrl.learner import part
from agentrl.learner.micro_batch import MicroBatch, pack
from agentrl.learner.model import load_model
from agentrl.learner.policy_learner import PolicyLearner
from agentrl.learner.sharding import Sharding
from agentrl.learner.spec import LearnerSpec
from agentrl.learner.tensor_parallel import cut_of
from agentrl.learner.value_model import load_value_model
from agentrl.types import Group, SampleId, Segment, Signal, StepReport, StopReason, TokenSequence, Trajectory
from agentrl.weights.digest import tensor_digest
from agentrl.weights.staging import StagedBucket
from tests.real import asynchronous
from tests.real.rank_processes import work
from tests.unit.learner.synthetic import batch, with_advantages, with_values


@dataclass(frozen=True)
class Job:
    """One scenario, for every rank of it."""

    scenario: str
    specs: tuple[LearnerSpec, ...]
    ranks: int
    port: int
    folder: Path


def learners(job: Job, rank: int) -> list[PolicyLearner]:
    return [PolicyLearner(spec, rank, job.ranks, "127.0.0.1", job.port) for spec in job.specs]


def whole(learner: PolicyLearner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.weights()}


def scored(learner: PolicyLearner, sequences: list[TrainSequence]) -> list[TrainSequence]:
    """The batch with the columns that its algorithm needs, as the driver merges them from all ranks."""
    columns = sorted(make_algorithm(learner.spec.algorithm, learner.spec.run).requirements.columns)
    if not columns:
        return sequences
    shares: list[Any] = [None] * learner.world_size
    torch.distributed.all_gather_object(shares, learner.score(sequences, columns))
    merged = {column: {index: row for share in shares for index, row in share[column].items()} for column in columns}
    return [
        sequence.with_columns(**{column: merged[column][index].astype(np.float32) for column in columns})
        for index, sequence in enumerate(sequences)
    ]


def train(job: Job, rank: int) -> list[tuple[list[StepReport], dict[str, torch.Tensor], list[list[float]]]]:
    """Three batches on each learner: reports, weights, logprobs."""
    out = []
    for learner in learners(job, rank):
        reports = [learner.step(scored(learner, batch(3, 4, seed))) for seed in range(3)]
        out.append((reports, whole(learner), learner.logprobs([[1, 2, 3, 4], [5, 6, 7]])))
    return out


def beside(job: Job, rank: int) -> list[tuple[list[str], list[str]]]:
    """What `train` does, on a device that works beside the host: digests, and DeepSpeed's calls."""
    asynchronous.install()
    out = []
    for spec in job.specs:
        asynchronous.CALLS.clear()
        [(reports, *_)] = train(replace(job, specs=(spec,)), rank)
        out.append(([report.digest for report in reports], list(asynchronous.CALLS)))
    return out


def waits(job: Job, rank: int) -> list[list[list[str]]]:
    """What happens from the first to the last pack of each call, on a device that works beside the host."""
    asynchronous.install()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "pack", asynchronous.noted("pack", pack))
        return [_waits_of(*learners(replace(job, specs=(spec,)), rank)) for spec in job.specs]


def _waits_of(learner: PolicyLearner) -> list[list[str]]:
    between = []

    def noted(call: Callable[..., Any], *args: Any) -> Any:
        asynchronous.CALLS.clear()
        result = call(*args)
        events = list(asynchronous.CALLS)
        packs = [index for index, event in enumerate(events) if event == "pack"]
        between.append(events[packs[0] : packs[-1] + 1])
        return result

    for seed in range(4):  # DeepSpeed's timer would begin in the third step
        noted(learner.step, noted(scored, learner, batch(3, 4, seed)))
    noted(learner.logprobs, [[token] * 40 for token in range(1, 5)])
    return between


def sharded(job: Job, rank: int) -> list[tuple[Any, ...]]:
    """Models as they are loaded at ZeRO stage 3: elements that the rank holds whole and as shards, whole values."""
    first, *others = job.specs
    [_] = learners(replace(job, specs=(first,)), rank)  # connects the ranks
    out: list[tuple[Any, ...]] = []
    for spec in others:
        sharding = Sharding.of(spec.learner, spec.compute)
        for load in (load_model, load_value_model):
            try:
                model = load(spec.model, spec.compute, sharding=sharding)
            except AgentRLError as error:
                out.append(("refused", str(error), 0))
                continue
            parameters: dict[str, Any] = dict(model.named_parameters())
            held = sum(values.numel() for values in parameters.values())
            shards = sum(values.ds_tensor.numel() for values in parameters.values())
            with deepspeed.zero.GatheredParameters([*parameters.values()]):
                out.append((held, shards, {name: values.detach().clone() for name, values in parameters.items()}))
    return out


def sharded_scorers(job: Job, rank: int) -> list[tuple[Any, ...]]:
    """Reference and teacher, for each spec: elements that the rank holds, scores before and after a step."""
    out = []
    for learner in learners(job, rank):
        models = learner._scorers.models.values()
        parameters: list[Any] = [values for model in models for values in model.parameters()]
        held = sum(getattr(values, "ds_tensor", values).numel() for values in parameters)
        held_whole = sum(values.numel() for values in parameters if hasattr(values, "ds_tensor"))
        before = learner.score(batch(), ["reference", "teacher"])
        learner.step(scored(learner, batch(3, 4, 1)))
        after = learner.score(batch(), ["reference", "teacher"])
        out.append((held + held_whole, before, after))
    return out


def returned(job: Job, rank: int) -> list[list[list[str]]]:
    """What each learner did with GPU memory in scores, a step, a step without a signal, and logprobs, in order."""
    events: list[str] = []
    torch.cuda.empty_cache = lambda: events.append("returned")
    out = []
    for learner in learners(job, rank):
        critic: Any = learner._critic

        def updated(*args: Any, update: Callable[..., Any] = critic.update) -> Any:
            events.append("critic")
            return update(*args)

        critic.update = updated
        rows = with_values(batch(3, 4, 1))
        quiet = [with_advantages(row, 0.0) for row in rows]
        calls: list[Callable[[], Any]] = [
            partial(learner.score, rows, ["values"]),
            partial(learner.step, rows),
            partial(learner.step, quiet),
            partial(learner.logprobs, [[1, 2, 3]]),
        ]
        found = []
        for call in calls:
            events.clear()
            call()
            found.append(list(events))
        out.append(found)
    return out


def silence(job: Job, rank: int) -> tuple[StepReport, bool, list[StepReport]]:
    """A batch without signal after one with; and one whose silent half is told apart only by the token count."""
    learner, other = learners(job, rank)
    learner.step(batch())
    before = whole(learner)
    quiet = [with_advantages(s, 0.0) for s in batch()]
    report = learner.step(quiet)
    same = all(torch.equal(before[name], tensor) for name, tensor in whole(learner).items())
    half = [with_advantages(s, 0.0) if s.sample.group else s for s in batch()]
    # 1e-30 is a signal to the learner, so every sequence goes through the model, and none to arithmetic.
    loud = [with_advantages(s, 1e-30) if s.sample.group else s for s in half]
    other.step(batch())
    return report, same, [learner.step(half), other.step(loud)]


def poison(job: Job, rank: int) -> list[tuple[list[StepReport], bool, bool]]:
    """A good batch, one whose loss overflows, the good one again; beside a learner that never saw the bad one.

    For each spec: the reports, whether the bad batch moved a weight, whether both learners agree at the end.
    """
    out = []
    for learner, other in zip(learners(job, rank), learners(job, rank), strict=True):
        bad = batch(3, 4, 1)
        bad[5] = with_advantages(bad[5], float("inf"))
        reports = [learner.step(batch(3, 4, 0))]
        before = whole(learner)
        reports.append(learner.step(bad))
        after = whole(learner)
        reports.append(learner.step(batch(3, 4, 2)))
        for seed in (0, 2):
            other.step(batch(3, 4, seed))
        out.append((reports, not _equal(before, after), _equal(whole(learner), whole(other))))
    return out


def spoiled(job: Job, rank: int) -> list[tuple[str, list[str]]]:
    """What saving says where one weight is not finite, and which files it left."""
    out = []
    for index, learner in enumerate(learners(job, rank)):
        parameter = next(iter(learner._model._model.parameters()))
        shard = getattr(parameter, "ds_tensor", parameter.data)
        shard.view(-1)[0] = float("nan")
        said = _said(lambda: learner.save(job.folder / f"step-{index}"))  # noqa: B023
        torch.distributed.barrier()
        out.append((said, sorted(path.name for path in job.folder.glob("step-*"))))
    return out


def apart(job: Job, rank: int) -> tuple[str, list[str]]:
    """What saving says where each rank has a disk of its own, and which checkpoints are on it."""
    [learner] = learners(job, rank)
    disk = job.folder / f"disk-{rank}"
    said = _said(lambda: learner.save(disk / "step-1"))
    if said != "nothing":
        torch.distributed.barrier()  # the other rank waits there for the name of the folder
    return said, sorted(path.name for path in disk.iterdir())


def forward_passes(job: Job, rank: int) -> list[int]:
    """The number of forward passes without a gradient that each learner makes for a batch."""
    out = []
    for learner in learners(job, rank):
        made, output = [0], learner._model.output

        def counted(micro_batch: Any) -> torch.Tensor:
            made[0] += 1  # noqa: B023
            return output(micro_batch)  # noqa: B023

        learner._model.output = counted  # type: ignore[method-assign]
        learner.step(batch(4, 4))
        out.append(made[0])
    return out


def _equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], tensor) for name, tensor in other.items())


def resume(job: Job, rank: int) -> tuple[list[StepReport], list[StepReport], bool, list[str]]:
    """Two steps, a checkpoint, two more; the same two from it in a fresh learner; what broken checkpoints say."""
    first, second = learners(job, rank)
    for seed in range(2):
        first.step(batch(seed=seed))
    folder = job.folder / "step-000002"
    first.save(folder)
    first.save(folder)  # again, over the first
    straight = [first.step(batch(seed=seed)) for seed in (2, 3)]
    second.load(folder)
    resumed = [second.step(batch(seed=seed)) for seed in (2, 3)]
    ours, theirs = whole(first), whole(second)
    errors = [_said(lambda: second.load(job.folder / "nowhere"))]
    for harm in (_truncate, Path.unlink):
        torch.distributed.barrier()
        if rank == 0:  # one writer: a rank that reads must never meet a half-written file
            harm(folder / "state" / "rank-00000-00000.safetensors")
        torch.distributed.barrier()
        errors.append(_said(lambda: second.load(folder)))
    return straight, resumed, all(torch.equal(ours[name], theirs[name]) for name in ours), errors


def _truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def other_layout(job: Job, rank: int) -> list[tuple[Any, ...]]:
    """Two batches, or the checkpoint `from-INDEX` after them, a checkpoint, and one batch more, for each spec.

    The report of the last batch; the weights, EMA and critic at the checkpoint and at the end.
    """
    out = []
    for index, learner in enumerate(learners(job, rank)):
        if (other := job.folder / f"from-{index}").exists():
            learner.load(other)
        else:
            for seed in range(2):
                learner.step(with_values(batch(3, 4, seed), seed))
        learner.save(job.folder / f"step-{index}", {"kl_coef": 0.25})
        before = _models(learner)
        report = learner.step(with_values(batch(3, 4, 2), 2))
        out.append((report, before, _models(learner)))
    return out


def _models(learner: PolicyLearner) -> tuple[dict[str, torch.Tensor], ...]:
    average = learner._model.averaged_weights() or ()
    critic = _critic(learner) if learner._critic else {}
    return whole(learner), {name: tensor.clone() for name, tensor in average}, critic


def moving_reference(job: Job, rank: int) -> list[tuple[Any, ...]]:
    """Policy and reference at the start and after each of three batches, and whether a resume is exact."""
    out = []
    pairs = zip(learners(job, rank), learners(job, rank), strict=True)
    for index, (learner, other) in enumerate(pairs):
        seen = [(whole(learner), _reference(learner))]
        for seed in range(3):
            learner.step(scored(learner, batch(seed=seed)))
            seen.append((whole(learner), _reference(learner)))
        learner.save(job.folder / f"step-{index}")
        other.load(job.folder / f"step-{index}")
        again = [each.step(scored(each, batch(seed=3))) for each in (learner, other)]
        is_resumed = (again[0].digest, again[0].meters) == (again[1].digest, again[1].meters)
        out.append((seen, is_resumed and _equal(_reference(learner), _reference(other))))
    return out


def _reference(learner: PolicyLearner) -> dict[str, torch.Tensor]:
    named = learner._scorers.models["reference"].named_parameters()
    cuts = ((name.removeprefix("model."), cut_of(values), values.detach()) for name, values in named)
    return {name: (cut.whole(values) if cut else values).clone() for name, cut, values in cuts}


def critic(job: Job, rank: int) -> list[tuple[Any, ...]]:
    """A batch of warm-up and one more, a checkpoint, one more, for each spec.

    Values of the start, reports, whether the warm-up kept the policy, the critic, whether a resume is exact.
    """
    out = []
    pairs = zip(learners(job, rank), learners(job, rank), strict=True)
    for index, (learner, other) in enumerate(pairs):
        start, before = learner.score(batch(), ["values"])["values"], whole(learner)
        reports = [learner.step(with_values(batch(3, 4, 0), 0))]
        is_kept = _equal(before, whole(learner))
        reports.append(learner.step(with_values(batch(3, 4, 1), 1)))
        learner.save(job.folder / f"step-{index}")
        values = _critic(learner)
        other.load(job.folder / f"step-{index}")
        again = [each.step(with_values(batch(3, 4, 2), 2)) for each in (learner, other)]
        is_resumed = (again[0].digest, again[0].meters) == (again[1].digest, again[1].meters)
        is_resumed = is_resumed and _equal(_critic(learner), _critic(other))
        out.append((start, reports, is_kept, values, is_resumed))
    return out


def _critic(learner: PolicyLearner) -> dict[str, torch.Tensor]:
    assert learner._critic is not None
    return {name: tensor.clone() for name, tensor in learner._critic.weights()}


def teacher(job: Job, rank: int) -> dict[int, Any]:
    """The teacher's logprobs of a batch that was sampled at another temperature than 1."""
    [learner] = learners(job, rank)
    return learner.score(batch(temperature=0.6), ["teacher"])["teacher"]


def adapters(job: Job, rank: int) -> list[tuple[Any, ...]]:
    """LoRA and an EMA, for each spec: reports, whether the base changed, weights, EMA, reference, resumed equally."""
    out = []
    pairs = zip(learners(job, rank), learners(job, rank), strict=True)
    for index, (learner, other) in enumerate(pairs):
        before = _frozen(learner)
        start = learner.score(batch(), ["reference"])["reference"]
        reports = [learner.step(batch(3, 4, seed)) for seed in range(2)]
        folder = job.folder / f"step-{index}"
        learner.save(folder)
        reference = learner.score(batch(), ["reference"])["reference"]
        other.load(folder)
        again = [each.step(batch(3, 4, 2)) for each in (learner, other)]
        averages = [dict(each._model.averaged_weights() or ()) for each in (learner, other)]
        out.append(
            (
                reports + again[:1],
                _equal(before, _frozen(learner)),
                whole(learner),
                averages[0],
                all((start[n] == row).all() for n, row in reference.items()),
                _equal(whole(learner), whole(other)) and _equal(*averages) and again[0].loss == again[1].loss,
                staged(learner),
            )
        )
    return out


def _frozen(learner: PolicyLearner) -> dict[str, torch.Tensor]:
    named = learner._model._model.named_parameters()
    return {name: getattr(p, "ds_tensor", p).detach().clone() for name, p in named if not p.requires_grad}


def staged(learner: PolicyLearner) -> list[StagedBucket]:
    """What a rank stages; all ranks gather each bucket."""
    learner.begin_staging()
    return [bucket for bucket in learner._buckets if bucket is not None]


def weakly(tensor: torch.Tensor) -> Any:
    """A reference that says whether the memory of a tensor is still held: `expired()`."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]


def gathering(job: Job, rank: int) -> list[tuple[Counter[str], list[int], int]]:
    """What a publication gathers, for each learner.

    How often each parameter is gathered, and each time the bytes that the rank already holds; the bytes of the largest
    layer.
    """
    gathered, gather = Counter[str](), deepspeed.zero.GatheredParameters
    names: dict[int, str] = {}

    def counted(parameters: list[Any]) -> Any:
        gathered.update(names[id(parameter)] for parameter in parameters)
        return gather(parameters)

    out, made = [], learners(job, rank)
    deepspeed.zero.GatheredParameters = counted
    for learner in made:
        learner.step(batch())
        model = learner._model
        names.update({id(parameter): name for name, parameter in model._model.named_parameters()})
        gathered.clear()
        announced = {name: tuple(tensor.shape) for name, tensor in learner.shapes()}
        assert not gathered, "names and shapes gather nothing"
        assert announced == {name: tuple(tensor.shape) for name, tensor in learner.weights()}
        gathered.clear()
        held, whole_of, alive = list[int](), model._gathered, dict[Any, int]()

        def watched(tensor: torch.Tensor) -> torch.Tensor:
            held.append(sum(nbytes for one, nbytes in alive.items() if not one.expired()))  # noqa: B023
            whole = whole_of(tensor)  # noqa: B023
            alive[weakly(whole)] = whole.nbytes  # noqa: B023
            return whole

        model._gathered = watched  # type: ignore[method-assign]
        for bucket in staged(learner):
            bucket.discard()
        layers = [layer.parameters() for layer in model._model.model.get_decoder().layers]
        layer = max(sum(4 * int(one.ds_numel) for one in layer) for layer in layers)
        out.append((Counter(gathered), held, layer))
    return out


def packs(job: Job, rank: int) -> list[list[tuple[int, int]]]:
    """The number of packs of a batch, and how many of them existed at once, for each learner in each of its tasks."""
    alive, counts, kind = list[Any](), list[int](), cast(Any, MicroBatch)
    to = kind.to

    def counted(pack: MicroBatch, *args: Any) -> Any:
        on_device = to(pack, *args)
        alive.append(weakly(on_device.ids_N))
        counts.append(sum(not one.expired() for one in alive))
        return on_device

    kind.to = counted
    out = []
    for learner in learners(job, rank):
        rows = scored(learner, batch(4, 4))
        tasks: list[Callable[[], Any]] = [
            partial(learner.step, rows),
            partial(learner.score, rows, ["old", "reference"]),
            partial(learner.logprobs, [row.ids.tolist() for row in rows]),
        ]
        found = []
        for task in tasks:
            counts.clear()
            task()
            found.append((len(counts), max(counts)))
        out.append(found)
    return out


def publish(job: Job, rank: int) -> list[tuple[list[tuple[str, str]], dict[str, str]] | None]:
    """What is staged, and the digests of what is saved as a model."""
    out = []
    for index, learner in enumerate(learners(job, rank)):
        learner.step(batch())
        buckets = staged(learner)
        digests = {name: tensor_digest(tensor) for name, tensor in whole(learner).items()}
        learner.save(job.folder / f"model-{index}")
        specs = [(spec.name, spec.digest) for bucket in buckets for spec in bucket.tensors]
        out.append((specs, digests) if rank == 0 else None)
        for bucket in buckets:
            bucket.discard()
    return out


def bandit(job: Job, rank: int) -> list[list[float]]:
    """One token an episode, reward 1 for an even one: the chance of an even token, step by step, for each learner."""
    return [_play(learner) for learner in learners(job, rank)]


def _play(learner: PolicyLearner, steps: int = 12) -> list[float]:
    rng, rule, curve = random.Random(0), make_algorithm(learner.spec.algorithm), []
    arms = list(range(3, 35))
    for _ in range(steps):
        logprobs = [row[-1] for row in learner.logprobs([[1, 2, arm] for arm in arms])]
        weights = torch.tensor(logprobs).softmax(0).tolist()
        curve.append(sum(w for arm, w in zip(arms, weights, strict=True) if arm % 2 == 0))
        groups = []
        for number in range(4):
            played = rng.choices(range(len(arms)), weights, k=8)
            groups.append(Group(number, tuple(_pull(number, m, arms[a], logprobs[a]) for m, a in enumerate(played))))
        samples = samples_of(groups)
        plain, columns = train_sequences(samples), sorted(rule.requirements.columns)
        scores = learner.score(plain, columns)
        attach(samples, {column: [scores[column][n] for n in range(len(plain))] for column in columns})
        assign(rule, samples)
        learner.step(train_sequences(samples))
    return curve


def _pull(group: int, member: int, arm: int, logprob: float) -> Trajectory:
    segments = (Segment((1, 2), is_action=False), Segment((arm,), is_action=True, logprobs=(logprob,)))
    signal = Signal("even", float(arm % 2 == 0))
    return Trajectory(
        SampleId(group, member), 0, "train", 0, "0", (TokenSequence(segments),), (), (signal,), StopReason.ENV_DONE
    )


def refused(job: Job, rank: int) -> str:
    """What a rank says at its start."""
    return _said(lambda: learners(job, rank))


def death(job: Job, rank: int) -> str:
    """Rank 1 dies before its second step; what rank 0 says."""
    [learner] = learners(job, rank)
    learner.step(batch())
    if rank == 1:
        os._exit(1)
    return _said(lambda: learner.step(batch()))


def _said(work: Callable[[], object]) -> str:
    try:
        work()
    except AgentRLError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


SCENARIOS: dict[str, Callable[[Job, int], Any]] = {
    f.__name__: f
    for f in (
        train,
        beside,
        waits,
        sharded,
        sharded_scorers,
        returned,
        silence,
        poison,
        spoiled,
        apart,
        forward_passes,
        resume,
        other_layout,
        moving_reference,
        critic,
        teacher,
        adapters,
        gathering,
        packs,
        publish,
        bandit,
        refused,
        death,
    )
}


def main() -> None:
    """Run the scenario of a job on one rank."""
    work(lambda job, rank: SCENARIOS[job.scenario](job, rank))
