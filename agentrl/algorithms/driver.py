"""What a run does with an algorithm: credit for a batch, whether a group has a signal, what adapts after a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np

from agentrl.algorithms.adaptive import adapted, checked_state
from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.sample import Array, Sample, samples_of
from agentrl.algorithms.shaping import kl_values, observe, scale, shape
from agentrl.errors import AlgorithmError, ConfigError, CreditError, catch
from agentrl.plugins.tracebacks import call_author, defined_at
from agentrl.types import Group, StepReport


def assign(algorithm: Algorithm, groups: Sequence[Sequence[Sample]]) -> None:
    """Shape the rewards, give credit, normalise the loss. Raises AlgorithmError for what cannot be trained."""
    _assign(algorithm, groups, is_trial=False)


def has_signal(algorithm: Algorithm, group: Group) -> bool:
    """True when any advantage of the group is not 0, or if a group cannot be credited alone.

    A KL in the reward does not count, and the state stays as it is: it enters both once, when the batch is trained.
    """
    if not algorithm.credits_groups_alone:
        return True
    groups, trial = samples_of([group]), copy(algorithm)
    trial.state = dict(algorithm.state)
    _assign(trial, groups, is_trial=True)
    return any(np.any(sample.advantages * sample.weights) for sample in groups[0])


def adapt(algorithm: Algorithm, report: StepReport) -> None:
    """Adapt the state after a step that has learned: the coefficients that have a target, then what `after` adapts."""
    if report.has_learned:
        algorithm.state = adapted(algorithm.config, algorithm.state, report)
        _call(algorithm, algorithm.after, report)


def _call(algorithm: Algorithm, method: Callable[..., Any], *args: Any) -> None:
    """Call `credit` or `after`, and check what it returns and the state that it leaves."""
    where = f"{algorithm.name}: {method.__name__}{defined_at(method)}"
    before = dict(algorithm.state)
    returned = call_author(f"{algorithm.name}: {method.__name__} failed", method, *args, at=method, kind=AlgorithmError)
    if returned is not None:
        raise CreditError(f"{where} returned {type(returned).__name__}: set the attributes, and return nothing")
    algorithm.state = checked_state(algorithm.name, algorithm.state, before)


def _assign(algorithm: Algorithm, groups: Sequence[Sequence[Sample]], *, is_trial: bool) -> None:
    _refuse_incomplete(algorithm, groups)
    for sample in (sample for samples in groups for sample in samples):
        sample.share = None
    compared = _compared(algorithm, groups)
    if compared:
        _shape(algorithm, compared, is_trial=is_trial)
        _call(algorithm, algorithm.credit, tuple(map(tuple, compared)))
    members = [sample for samples in compared for sample in samples]
    _check_shares(algorithm, members)
    credited = set(members)
    for sample in (sample for samples in groups for sample in samples):
        if sample not in credited:
            sample.weights = np.zeros(len(sample))
            sample.returns = np.zeros(len(sample)) if "values" in algorithm.requirements.columns else None
        _check(algorithm, sample)
        _normalise(algorithm, sample)
    if not any(sample.share for sample in members) and any(np.any(sample.weights) for sample in members):
        raise CreditError(f"{algorithm.name}: every `share` is 0, so that nothing would be trained: leave it unset")


def _compared(algorithm: Algorithm, groups: Sequence[Sequence[Sample]]) -> Sequence[Sequence[Sample]]:
    """Return the samples that are trained, by group; `truncated` mask leaves out those that a limit cut off.

    A masked episode influences no other: no mean, deviation or running scale contains its rewards, so that it is
    neither rewarded nor punished to run into the limit (Adv-Mask-Before in Skywork-OR1, arXiv:2505.22312, section
    3.2.3). A group that is left with fewer than `needs.group_size` members is masked whole. A greedy episode is a
    baseline even if it was cut off, because it is not trained.
    """
    if algorithm.config.truncated == "keep":
        return groups
    whole = [[sample for sample in samples if not sample.is_truncated] for samples in groups]
    return [samples for samples in whole if len(samples) >= algorithm.needs.group_size]


def _refuse_incomplete(algorithm: Algorithm, groups: Sequence[Sequence[Sample]]) -> None:
    for samples in groups:
        if len(samples) < algorithm.needs.group_size:
            raise AlgorithmError(
                f"group {samples[0].trajectory.sample.group if samples else '?'} has {len(samples)} valid samples, "
                f"{algorithm.name} needs {algorithm.needs.group_size}. Filter such groups, or raise rollout.group_size."
            )
        for sample in samples:
            if not len(sample):
                raise AlgorithmError(f"sample {sample.trajectory.sample} has no sampled token: nothing to train on")
            if len(sample.greedy) < algorithm.needs.greedy:
                raise AlgorithmError(f"sample {sample.trajectory.sample} has no greedy episode as its baseline")


def _shape(algorithm: Algorithm, groups: Sequence[Sequence[Sample]], *, is_trial: bool) -> None:
    """Shape the rewards. In a trial they have no KL, and neither enter the running scale nor are divided by it."""
    members = [sample for samples in groups for sample in samples]
    everyone = list({id(s): s for sample in members for s in (sample, *sample.greedy)}.values())
    for sample in everyone:
        if not all(math.isfinite(reward.value) for reward in sample.earned):
            raise CreditError(f"{algorithm.name}: a reward of sample {sample.trajectory.sample} is not finite")
    shape(everyone, algorithm.config, algorithm.run.max_tokens)
    if algorithm.config.normalize_rewards and not is_trial:
        observe(members, algorithm.state)
        scale(everyone, algorithm.state)
    if algorithm.config.has_reward_kl and not is_trial:
        coefficient = algorithm.state.get("kl_coef", algorithm.config.kl_coef)
        for sample in members:
            kl = kl_values(sample.column("old"), sample.column("reference"), algorithm.config.kl_estimator)
            sample.kl = coefficient * kl


def _normalise(algorithm: Algorithm, sample: Sample) -> None:
    """Divide the loss as `normalization` says: a mean over tokens, over sequences, or by a constant.

    A sample without a trained token does not count. What `credit` has set stays.
    """
    if sample.share is not None:
        return
    tokens = float(np.count_nonzero(sample.weights))
    match algorithm.config.normalization:
        case "token":
            sample.share = tokens
        case "sequence":
            sample.weights = sample.weights / max(1.0, tokens)
            sample.share = float(tokens > 0)
        case "constant":
            sample.share = float(algorithm.config.constant or algorithm.run.max_tokens) * (tokens > 0)


def _check_shares(algorithm: Algorithm, credited: Sequence[Sample]) -> None:
    """Check the shares that `credit` has set, if it has. Raises CreditError, ConfigError for a key without effect."""
    own = {sample: sample.share for sample in credited if sample.share is not None}
    for sample, share in own.items():
        is_number = isinstance(share, int | float | np.integer | np.floating) and math.isfinite(share)
        if not is_number or share < 0:
            raise CreditError(
                f"{algorithm.name}: share of sample {sample.trajectory.sample} is {share!r}, not a number of at least 0"
            )
        sample.share = float(share)
    if own and len(own) < len(credited):
        raise CreditError(f"{algorithm.name}: credit set `share` of some samples: set it for all of them, or for none")
    if own and (idle := sorted({"normalization", "constant"} & algorithm.config.model_fields_set)):
        raise ConfigError(
            f"algorithm.{idle[0]} has no effect with {algorithm.name}, which sets what the summed loss is divided by "
            "(sample.share): leave it out"
        )


def _check(algorithm: Algorithm, sample: Sample) -> None:
    for name in ("advantages", "weights", "returns"):
        values = getattr(sample, name)
        if name == "returns" and values is None:
            continue
        sample_id, values = sample.trajectory.sample, _numbers(algorithm, sample, name, values)
        if values.shape != (len(sample),):
            raise CreditError(
                f"{algorithm.name}: {name} of sample {sample_id} have the shape {values.shape}, not ({len(sample)},): "
                "credit must give one number for each sampled token"
            )
        if not np.all(np.isfinite(values.astype(np.float32))):
            hint = "" if name == "weights" else ": look at its rewards"
            raise CreditError(f"{algorithm.name}: {name} of sample {sample_id} are not finite{hint}")
        setattr(sample, name, values)
    if "values" in algorithm.requirements.columns and sample.returns is None:
        raise CreditError(f"{algorithm.name}: credit must set `returns`, from which the critic learns")


def _numbers(algorithm: Algorithm, sample: Sample, name: str, values: Any) -> Array:
    """Return a copy of what credit has set, as an array of numbers."""
    made = catch(np.array, values)
    if made.error is not None or made.value.dtype.kind not in "biuf":
        why = made.error or f"of the type {made.value.dtype}"
        raise CreditError(
            f"{algorithm.name}: {name} of sample {sample.trajectory.sample} are no array of numbers but a "
            f"{type(values).__name__}: {why}"
        )
    numbers: Array = made.value.astype(np.float64)
    return numbers
