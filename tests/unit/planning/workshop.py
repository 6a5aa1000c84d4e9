"""Episodes, groups and calibrations made by hand, and a simulated run that is recorded like a real one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from agentrl.algorithms.base import RunShape
from agentrl.algorithms.registry import make_algorithm
from agentrl.config.schema import Config
from agentrl.planning.simulation.calibration import Calibration, LearnerRates
from agentrl.planning.simulation.engine import EngineRates
from agentrl.planning.simulation.episode import Episode, Turn
from agentrl.planning.simulation.recorded import RecordedRun
from agentrl.planning.simulation.workload import Attempt, Member, RecordedGroup
from agentrl.types import Signal, StopReason

FREE = EngineRates(0.0, 0.0, 0.0)
NO_LEARNER = LearnerRates(0.0, 0.0)


def config(**changes: object) -> Config:
    """A run of 2 groups of 2 on two cores, in turns; `changes` are keys such as rollout__prompts."""
    tree: dict[str, dict[str, object]] = {
        "rollout": {"prompts": 2, "group_size": 2},
        "engine": {"count": 1, "tensor_parallel": 1, "threads": 2, "placement": "separate"},
        "learner": {"ranks": 1, "threads": 2},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        tree.setdefault(section, {})[key] = value
    return Config.model_validate({"device": "cpu", **tree})


def episode(
    sampled: int | Sequence[int] = 10,
    context: int | Sequence[int] = 0,
    *,
    reward: float | None = 1.0,
    env_s: float = 0.0,
    score_s: float = 0.0,
    worker_s: float = 0.0,
    stop: StopReason = StopReason.ENV_DONE,
) -> Episode:
    """An episode whose turns sample so many tokens each; reward None makes it invalid."""
    lengths = [sampled] if isinstance(sampled, int) else sampled
    contexts = [context] * len(lengths) if isinstance(context, int) else context
    turns = tuple(Turn(n, contexts[n], length) for n, length in enumerate(lengths))
    signal = Signal("reward", reward) if reward is not None else Signal.invalid("reward", "it failed")
    return Episode(turns, env_s, score_s, worker_s, 0.0, (signal,), stop)


def member(*attempts: Episode | float) -> Member:
    """A sample with these attempts; a number is an attempt that was lost after so many seconds."""
    return tuple(Attempt(None, a) if isinstance(a, float) else Attempt(a, 0.0) for a in attempts)


def group(*episodes: Episode | Member) -> RecordedGroup:
    """A group of these members. Give them different rewards for a signal."""
    return RecordedGroup("math", tuple(member(e) if isinstance(e, Episode) else e for e in episodes))


def pair(sampled: int = 10, context: int = 0, **fields: object) -> RecordedGroup:
    """A group of two equal episodes, one of them solved."""
    return group(*(episode(sampled, context, reward=reward, **fields) for reward in (0.0, 1.0)))  # type: ignore[arg-type]


def calibration(
    groups: Iterable[RecordedGroup],
    engine: EngineRates = FREE,
    learner: LearnerRates = NO_LEARNER,
    recorded: Config | None = None,
    *,
    publish_s: float = 0.0,
    other_s: float = 0.0,
    dispatch_s: float = 0.0,
) -> Calibration:
    """A calibration with these rates."""
    recorded = recorded or config()
    algorithm = make_algorithm(recorded.algorithm, RunShape.of(recorded))
    run = RecordedRun(Path("run"), recorded, algorithm, (), ())
    return Calibration(run, (), tuple(groups), engine, learner, (publish_s,), (other_s,), dispatch_s, 1 << 30, 1 << 30)
