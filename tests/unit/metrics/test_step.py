"""Signals and tools in the records of a step and an evaluation."""

from __future__ import annotations

from dataclasses import replace

from agentrl.metrics.step import rewriters, signal_means, tool_use
from agentrl.types import (
    Batch,
    Group,
    Message,
    SampleId,
    Segment,
    Signal,
    StopReason,
    TokenSequence,
    Trajectory,
)


def episode(*roles_and_texts: tuple[str, str], turns: int, signals: tuple[Signal, ...] = ()) -> Trajectory:
    messages = tuple(Message(role=role, content=text) for role, text in roles_and_texts)  # type: ignore[typeddict-item]
    return Trajectory(SampleId(0, 0), 0, "train", 0, "0", (), messages, signals, StopReason.ENV_DONE, turns=turns)


EXAMPLE = (("user", "1+1?"), ("assistant", ""), ("tool", "2"), ("assistant", "2"), ("user", "2+2?"))


def test_the_means_of_signals_leave_out_what_has_no_value() -> None:
    one = episode(turns=0, signals=(Signal("right", 1.0), Signal("short", 0.5)))
    other = replace(one, signals=(Signal("right", 0.0), Signal.invalid("short", "nobody knows")))
    assert signal_means([one, other]) == {"right": 0.5, "short": 0.5}


def test_results_shown_in_the_prompt_are_no_tool_use() -> None:
    assert episode(*EXAMPLE, ("assistant", "4"), turns=1).tool_results == ()
    used = episode(*EXAMPLE, ("assistant", ""), ("tool", "4"), ("assistant", "4"), turns=2)
    assert [message["content"] for message in used.tool_results] == ["4"]
    assert episode(*EXAMPLE, turns=0).tool_results == ()


def test_tool_use_is_the_share_of_episodes_that_a_tool_answered() -> None:
    used = episode(("user", "?"), ("assistant", ""), ("tool", "error: no"), ("tool", "4"), ("assistant", "4"), turns=2)
    failed = episode(("user", "?"), ("assistant", ""), ("tool", "error: no"), ("assistant", "4"), turns=2)
    plain = episode(("user", "?"), ("assistant", "4"), turns=1)
    assert tool_use([used, failed, plain, plain]) == 0.25


def batch(*episodes: tuple[str, int, int]) -> Batch:
    """A batch of one group of episodes as (environment, turns, sequences)."""
    sequence = TokenSequence((Segment((1,), False),))
    trajectories = [
        replace(episode(turns=turns), env=env, sequences=(sequence,) * sequences) for env, turns, sequences in episodes
    ]
    return Batch((Group(0, tuple(trajectories)),), (), ())


def test_an_agent_rewrites_its_history_if_most_of_its_long_episodes_have_a_sequence_for_every_turn() -> None:
    assert rewriters(batch(("a", 3, 3), ("a", 5, 5), ("a", 4, 1), ("b", 4, 1), ("b", 4, 4))) == {"a": 3.0}


def test_two_parallel_calls_and_branches_rewrite_nothing() -> None:
    assert rewriters(batch(("a", 2, 2), ("a", 1, 1), ("b", 13, 6))) == {}
