"""Calibration: what the engines, the learner and a publication take, fitted to some steps of a recorded run."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agentrl.algorithms.base import Algorithm
from agentrl.algorithms.driver import has_signal
from agentrl.errors import ConfigError
from agentrl.metrics.step import StepRecord
from agentrl.planning.simulation.cache import block_of
from agentrl.planning.simulation.engine import EngineRates
from agentrl.planning.simulation.episode import LearnerTokens, learner_tokens
from agentrl.planning.simulation.fitting import Array, fitted
from agentrl.planning.simulation.recorded import RecordedRun, TimedAttempt
from agentrl.planning.simulation.timeline import SampledTurn, Timeline, turns_of, without_pauses, without_queue
from agentrl.planning.simulation.workload import RecordedGroup
from agentrl.types import TRAIN, EpisodeRequest, EpisodeSettings, Group, Trajectory

NO_SETTINGS = EpisodeSettings(1.0, 0, 0, 0.0, 0.0)
ROUNDS = 12
"""How often rates are fitted until the seconds of an episode are divided among its turns as they predict."""
LEAST_S = 1e-3
"""The fewest seconds of a turn."""


@dataclass(frozen=True, slots=True)
class LearnerRates:
    """What a learner takes for a batch: `update_s`, `token_s` for each token, `sampled_s` more for each sampled one.

    `noise`: real over fitted seconds.
    """

    update_s: float
    token_s: float
    sampled_s: float = 0.0
    noise: tuple[float, ...] = (1.0,)

    def tokens_s(self, tokens: LearnerTokens) -> float:
        """Return the seconds that tokens take, without those of every update."""
        return self.token_s * tokens.total + self.sampled_s * tokens.sampled


@dataclass(frozen=True)
class Calibration:
    """What a simulation needs to know of a run, from some of its steps.

    `publish_s` and `other_s` are the seconds of single steps. `most_tokens` went through the learner in one step, and
    `most_requests` were in flight on all engines together.
    """

    run: RecordedRun
    steps: tuple[StepRecord, ...]
    groups: tuple[RecordedGroup, ...]
    engine: EngineRates
    learner: LearnerRates
    publish_s: tuple[float, ...]
    other_s: tuple[float, ...]
    dispatch_s: float
    most_tokens: int
    most_requests: int


def calibrate(run: RecordedRun, steps: Sequence[StepRecord]) -> Calibration:
    """Calibrate a simulation by these steps of a run. Raises ConfigError if they show too little."""
    groups = tuple(run.groups(steps))
    trained = {step.step: tokens_of(run, step) for step in steps}
    learned = [step for step in steps if step.learner.has_learned and trained[step.step].total]
    if len(learned) < 2 or not groups:
        raise ConfigError(
            f"steps {steps[0].step} to {steps[-1].step} of {run.folder} contain {len(groups)} whole groups and "
            f"{len(learned)} updates: a simulation needs a group and two updates. Record a longer run"
        )
    if missing := {env.label for env in run.config.env} - {group.env for group in groups}:
        raise ConfigError(
            f"steps {steps[0].step} to {steps[-1].step} of {run.folder} contain no whole group of "
            f"{', '.join(sorted(missing))}: record a longer run"
        )
    engine, peak = engine_rates(run, steps)
    return Calibration(
        run,
        tuple(steps),
        groups,
        engine,
        learner_rates([trained[step.step] for step in learned], [step.seconds.learn for step in learned]),
        tuple(step.seconds.publish for step in learned),
        tuple(step.seconds.other for step in steps),
        dispatch_s(run, steps),
        max(tokens.total for tokens in trained.values()),
        peak,
    )


# --------------------------------------------------------------------------------------------------------------
# The learner.


def tokens_of(run: RecordedRun, step: StepRecord) -> LearnerTokens:
    """Return the tokens that went through the learner in a step."""
    members: dict[int, list[TimedAttempt]] = collections.defaultdict(list)
    for attempt in run.attempts:
        if attempt.trained_in == step.step:
            members[attempt.sample.group].append(attempt)
    size = run.config.rollout.group_size
    return trained_tokens(run.algorithm, [_group(members[group], size) for group in members])


def trained_tokens(algorithm: Algorithm, groups: Iterable[Group]) -> LearnerTokens:
    """Return the tokens of a batch that go through the learner, which skips groups without a signal if it may."""
    chosen = filter(partial(has_signal, algorithm), groups) if algorithm.skips_zero_advantages else groups
    return sum(map(learner_tokens, chosen), LearnerTokens())


def _group(attempts: Sequence[TimedAttempt], size: int) -> Group:
    members = [(a.sample.member < size, _trajectory(a)) for a in sorted(attempts, key=lambda a: a.sample)]
    trained, greedy = (tuple(t for is_trained, t in members if is_trained is kind) for kind in (True, False))
    return Group(attempts[0].sample.group, trained, greedy)


def _trajectory(attempt: TimedAttempt) -> Trajectory:
    assert attempt.episode is not None, "what was trained came back"
    request = EpisodeRequest(attempt.sample, attempt.attempt, TRAIN, 0, 0, NO_SETTINGS, attempt.env)
    return attempt.episode.trajectory(request, [() for _ in attempt.episode.turns], attempt.episode.engine_s)


def learner_rates(tokens: Sequence[LearnerTokens], seconds: Sequence[float]) -> LearnerRates:
    """Fit the seconds of updates to their tokens.

    Updates of about the same size show no constant part, and those with about the same share of sampled tokens not
    what these take beyond the others.
    """
    causes, taken = np.array([(1, each.total, each.sampled) for each in tokens], float), np.array(seconds)
    update_s, token_s, sampled_s = rates = fitted(causes, taken, (True, False, True), len(tokens))
    noise = taken / np.maximum(1e-9, causes @ rates)
    return LearnerRates(float(update_s), float(token_s), float(sampled_s), tuple(noise.tolist()))


# --------------------------------------------------------------------------------------------------------------
# The engines and the workers.


def engine_rates(run: RecordedRun, steps: Sequence[StepRecord]) -> tuple[EngineRates, int]:
    """Fit the seconds of turns to the steps of their engine meanwhile, and to the tokens that it sampled and read.

    If about as many requests are always in flight, their number is taken not to matter: the steps of small batches take
    as long as it takes to read the weights. The seconds of an episode's turns are recorded as their sum: each round
    divides it by what the rates of the one before predict, the first one by sampled tokens.

    Returns the rates, and the largest number of requests in flight at once.
    """
    chosen = {step.step for step in steps}
    shares = {a: [turn.sampled * 1.0 for turn in a.episode.turns] for a in run.attempts if a.episode}
    for _ in range(ROUNDS if any(len(each) > 1 for each in shares.values()) else 1):
        timelines = _timelines(run, shares)
        turns = [(turn, *timeline.work(turn)) for timeline in timelines for turn in timeline.turns]
        rows: dict[TimedAttempt, Array] = collections.defaultdict(lambda: np.zeros(4))
        for turn, seconds, work in turns:
            if turn.attempt.ended_in in chosen:
                rows[turn.attempt] += (*work, seconds)
        table = np.array(list(rows.values()))
        rates = fitted(table[:, :3], table[:, 3], (False, True, True), len(steps))
        predicted = _predicted(turns, rates).items()
        shares |= {attempt: seconds for attempt, seconds in predicted if len(seconds) == len(shares[attempt])}
    return EngineRates(*map(float, rates)), sum(timeline.peak for timeline in timelines)


def _timelines(run: RecordedRun, shares: Mapping[TimedAttempt, Sequence[float]]) -> list[Timeline]:
    """Return the timeline of each engine; the members of a group go to the engines in turn."""
    engine = run.config.engine
    seen: collections.Counter[int] = collections.Counter()
    turns: list[SampledTurn] = []
    for attempt in sorted(shares, key=lambda attempt: attempt.dispatched_at):
        turns += turns_of(attempt, seen[attempt.sample.group] % engine.count, shares[attempt])
        seen[attempt.sample.group] += 1
    turns, published = without_pauses(without_queue(turns, engine.count * engine.max_num_seqs), run.steps)
    return [
        Timeline([turn for turn in turns if turn.engine == number], published, block_of(run.config))
        for number in range(engine.count)
    ]


def _predicted(turns: Iterable[tuple[SampledTurn, float, Array]], rates: Array) -> dict[TimedAttempt, list[float]]:
    """Return the seconds of each attempt's turns that these rates predict."""
    found: dict[TimedAttempt, list[float]] = collections.defaultdict(list)
    for turn, seconds, work in turns:
        found[turn.attempt].append(max(LEAST_S, turn.ended - turn.began + float(work @ rates) - seconds))
    return found


def dispatch_s(run: RecordedRun, steps: Sequence[StepRecord]) -> float:
    """Return what each episode costs a worker, from how much longer episodes take if many are dispatched at once.

    0 if the number of episodes at once is limited, because the wait for a free place cannot be told apart from it.
    """
    if any(run.config.rollout_of(env).concurrency for env in run.config.env):
        return 0.0
    chosen = {step.step for step in steps}
    bursts: dict[float, list[float]] = collections.defaultdict(list)
    for attempt in run.attempts:
        if attempt.ended_in in chosen and (episode := attempt.episode):
            spent = episode.engine_s + episode.env_s + episode.score_s + episode.worker_s
            bursts[round(attempt.dispatched_at, 1)].append(attempt.ended_at - attempt.dispatched_at - spent)
    costs = [2 * statistics.median(delays) / len(delays) for delays in bursts.values()]
    return run.config.rollout.workers * max(0.0, statistics.median(costs)) if costs else 0.0
