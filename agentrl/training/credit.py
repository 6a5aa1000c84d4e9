"""Credit for a batch: the columns that its algorithm needs, computed by the ranks, then the advantages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.driver import assign
from agentrl.algorithms.sample import TrainSequence, attach, samples_of, train_sequences
from agentrl.algorithms.shaping import format_meters
from agentrl.cluster.learners import Learners
from agentrl.types import Group, StepReport


async def credited(
    algorithm: Algorithm, learners: Learners, groups: Sequence[Group], deadline_s: float
) -> list[TrainSequence]:
    """Return the sequences of the groups with credit."""
    samples = samples_of(groups)
    if columns := sorted(algorithm.requirements.columns):
        attach(samples, await learners.score(train_sequences(samples), columns, deadline_s))
    assign(algorithm, samples)
    return train_sequences(samples)


def with_meters(algorithm: Algorithm, groups: Sequence[Group], reports: Sequence[StepReport]) -> list[StepReport]:
    """Return the reports of a batch with what the shaping of its rewards has metered."""
    shaped = format_meters(groups, algorithm.config)
    return [replace(report, meters=report.meters | shaped) for report in reports]
