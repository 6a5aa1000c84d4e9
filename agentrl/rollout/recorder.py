"""The tokens that the engine received and sampled: the sequences of one episode."""

from __future__ import annotations

from agentrl.errors import EngineError
from agentrl.types import Completion, Segment, TokenIds, TokenSequence


class Branch:
    """One context of the engine: what it received and sampled, in order. `prompt` is what it has to continue."""

    def __init__(self, ids: TokenIds, turn: int) -> None:
        self.prompt = ids
        self.turn: int | None = None
        """The last turn that sampled a token here."""
        self._segments = [Segment(ids, is_action=False, turn=turn)]

    def context(self, ids: TokenIds, turn: int) -> None:
        """Append tokens that were not sampled."""
        self.prompt += ids
        self._segments.append(Segment(ids, is_action=False, turn=turn))

    def action(self, completion: Completion, turn: int, agent: str = "") -> None:
        """Append what the engine sampled after `prompt`; raises EngineError if its parts do not match."""
        _check(completion)
        self.prompt += completion.ids
        self.turn = turn
        self._segments.append(Segment(completion.ids, True, completion.logprobs, completion.versions, turn, agent))

    @property
    def sequence(self) -> TokenSequence | None:
        """The sequence up to its last sampled token; None if there is none."""
        actions = [n for n, segment in enumerate(self._segments) if segment.is_action and segment.ids]
        return TokenSequence(tuple(self._segments[: actions[-1] + 1])) if actions else None


class Recorder:
    """The branches of one episode, in the order in which they began.

    A branch begins with the first messages, with a rewritten history, or where an agent's calls diverge; what precedes
    is context there. So a sampled token has mask 1 in exactly one sequence.
    """

    def __init__(self) -> None:
        self._branches: list[Branch] = []

    def begin(self, ids: TokenIds, turn: int = 0) -> Branch:
        """Begin a branch with `ids` as its context."""
        self._branches.append(Branch(ids, turn))
        return self._branches[-1]

    def longest(self, ids: TokenIds) -> Branch | None:
        """Return the longest branch that `ids` begin with."""
        known = [branch for branch in self._branches if ids[: len(branch.prompt)] == branch.prompt]
        return max(known, key=lambda branch: len(branch.prompt), default=None)

    def sequences(self) -> tuple[TokenSequence, ...]:
        """Return the sequences with sampled tokens, without context after the last of them."""
        return tuple(sequence for branch in self._branches if (sequence := branch.sequence))


def _check(completion: Completion) -> None:
    """Check for one logprob per id, and for version spans that cover all ids in order without gaps."""
    length = len(completion.ids)
    starts = [0, *(span.end for span in completion.versions)]
    ends = [*(span.start for span in completion.versions), length]
    if len(completion.logprobs) != length or starts != ends or starts != sorted(starts):
        raise EngineError(
            f"the engine returned {length} ids with {len(completion.logprobs)} logprobs and version spans "
            f"{[(span.start, span.end) for span in completion.versions]}: each id needs one of each"
        )
