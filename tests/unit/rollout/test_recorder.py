"""Sequences hold what the engine saw and sampled, and nothing that does not fit together."""

from __future__ import annotations

import pytest

from agentrl.errors import EngineError
from agentrl.rollout.recorder import Recorder
from agentrl.types import Completion, Version, VersionSpan

V0, V1 = Version(0, 0), Version(0, 1)


def completion(*ids: int, spans: tuple[VersionSpan, ...] | None = None, logprobs: int | None = None) -> Completion:
    count = len(ids) if logprobs is None else logprobs
    return Completion(ids, (-0.5,) * count, (VersionSpan(V0, 0, len(ids)),) if spans is None else spans, "stop")


def test_contexts_and_actions_alternate_in_one_sequence() -> None:
    recorder = Recorder()
    branch = recorder.begin((1, 2))
    branch.action(completion(3, 4, spans=(VersionSpan(V0, 0, 1), VersionSpan(V1, 1, 2))), turn=0)
    branch.context((5,), turn=0)
    branch.action(completion(6), turn=1)
    (sequence,) = recorder.sequences()
    assert branch.prompt == (1, 2, 3, 4, 5, 6)
    assert sequence.ids == [1, 2, 3, 4, 5, 6]
    assert sequence.mask == [0, 0, 1, 1, 0, 1]
    assert sequence.logprobs == [0.0, 0.0, -0.5, -0.5, 0.0, -0.5]
    assert sequence.versions == [None, None, V0, V1, None, V0]


def test_a_rewritten_history_is_context_in_the_next_sequence() -> None:
    recorder = Recorder()
    recorder.begin((1,)).action(completion(2), turn=0)
    recorder.begin((1, 2, 3), turn=1).action(completion(4), turn=1)
    assert [sequence.mask for sequence in recorder.sequences()] == [[0, 1], [0, 0, 0, 1]]


def test_context_that_nothing_was_sampled_after_is_left_out() -> None:
    recorder = Recorder()
    branch = recorder.begin((1,))
    assert recorder.sequences() == ()
    branch.action(completion(2), turn=0)
    branch.context((3, 4), turn=0)
    recorder.begin((5,), turn=1)
    assert [sequence.ids for sequence in recorder.sequences()] == [[1, 2]]


@pytest.mark.parametrize(
    "wrong",
    [
        completion(1, 2, logprobs=1),
        completion(1, 2, spans=()),
        completion(1, 2, spans=(VersionSpan(V0, 0, 1),)),
        completion(1, 2, spans=(VersionSpan(V0, 1, 2),)),
        completion(1, 2, spans=(VersionSpan(V0, 0, 3),)),
        completion(1, 2, spans=(VersionSpan(V0, 0, 2), VersionSpan(V1, 1, 2))),
    ],
    ids=["logprob missing", "no span", "end uncovered", "start uncovered", "beyond the end", "overlap"],
)
def test_a_completion_whose_parts_do_not_fit_is_refused(wrong: Completion) -> None:
    recorder = Recorder()
    branch = recorder.begin((9,))
    with pytest.raises(EngineError, match="each id needs one of each"):
        branch.action(wrong, turn=0)
    assert recorder.sequences() == ()


def test_branches_grow_side_by_side_and_keep_their_agents() -> None:
    recorder = Recorder()
    white, black = recorder.begin((1,)), recorder.begin((2,))
    white.action(completion(3), turn=0, agent="white")
    black.action(completion(4), turn=1, agent="black")
    white.context((5,), turn=2)
    white.action(completion(6), turn=2, agent="white")
    assert [sequence.ids for sequence in recorder.sequences()] == [[1, 3, 5, 6], [2, 4]]
    assert [s.agent for s in recorder.sequences()[0].segments if s.is_action] == ["white", "white"]
