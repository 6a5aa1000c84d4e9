"""The tokens that the engine received and sampled: the sequences of one episode."""

from __future__ import annotations

from agentrl.errors import EngineError
from agentrl.types import Completion, Segment, TokenIds, TokenSequence


class Recorder:
    """Records contexts and completions in the order of the engine's calls.

    `begin` starts a sequence: the first, or one with a rewritten history, which is all context there. So a sampled
    token has mask 1 in exactly one sequence. `prompt` is what the engine has to continue.
    """

    def __init__(self) -> None:
        self.prompt: TokenIds = ()
        self._sequences: list[list[Segment]] = []

    def begin(self, ids: TokenIds, turn: int = 0) -> None:
        """Begin a sequence with `ids` as its context."""
        self.prompt = ids
        self._sequences.append([Segment(ids, is_action=False, turn=turn)])

    def context(self, ids: TokenIds, turn: int) -> None:
        """Append tokens that were not sampled."""
        self.prompt += ids
        self._sequences[-1].append(Segment(ids, is_action=False, turn=turn))

    def action(self, completion: Completion, turn: int) -> None:
        """Append what the engine sampled after `prompt`; raises EngineError if its parts do not match."""
        _check(completion)
        self.prompt += completion.ids
        self._sequences[-1].append(Segment(completion.ids, True, completion.logprobs, completion.versions, turn))

    def sequences(self) -> tuple[TokenSequence, ...]:
        """Return the sequences with sampled tokens, without context after the last of them."""
        trimmed = (_until_last_action(segments) for segments in self._sequences)
        return tuple(TokenSequence(segments) for segments in trimmed if segments)


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


def _until_last_action(segments: list[Segment]) -> tuple[Segment, ...]:
    actions = [n for n, segment in enumerate(segments) if segment.is_action and segment.ids]
    return tuple(segments[: actions[-1] + 1]) if actions else ()
