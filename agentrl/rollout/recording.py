"""A recording: stored trajectories in place of the engines, so that their episodes run again without a model."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from agentrl.errors import EngineRefusedError
from agentrl.types import AttemptId, Completion, Prompt, Sampling, Segment, TokenIds, Trajectory


@dataclass(slots=True)
class Recording:
    """A `Sampler` that returns what was sampled for the same prompt of the same attempt.

    Prompts are compared token by token. An episode that asks for anything else differs from the recorded one, and
    nothing is sampled for it.
    """

    _left: dict[AttemptId, dict[TokenIds, list[Segment]]] = field(default_factory=dict)
    _turns: dict[AttemptId, int] = field(default_factory=dict)
    _strayed: dict[AttemptId, str] = field(default_factory=dict)

    def begin(self, trajectory: Trajectory) -> None:
        """Load the turns of an attempt."""
        left: dict[TokenIds, list[Segment]] = {}
        for sequence in trajectory.sequences:
            before: TokenIds = ()
            for segment in sequence.segments:
                if segment.is_action:
                    left.setdefault(before, []).append(segment)
                before += segment.ids
        attempt = trajectory.sample, trajectory.attempt
        self._left[attempt], self._turns[attempt] = left, 0

    def end(self, attempt: AttemptId) -> str:
        """Forget an attempt. Returns where the new episode differs from the recorded one, "" if it does not."""
        left, turns = sum(map(len, self._left.pop(attempt).values())), self._turns.pop(attempt)
        strayed = self._strayed.pop(attempt, "")
        if strayed or not left:
            return strayed
        return f"the episode ends after turn {turns}, and {turns + left} were recorded"

    async def generate(
        self,
        prompt: Prompt,
        sampling: Sampling,
        deadline_s: float,  # noqa: ARG002 (the signature of a Sampler)
        key: Hashable | None = None,
    ) -> Completion:
        """Return the recorded completion of a prompt. Raises EngineRefusedError if there is none."""
        assert isinstance(key, tuple), "an episode asks with its attempt"
        attempt: AttemptId = key
        found = self._left[attempt].get(prompt.ids)
        if not found:
            self._strayed.setdefault(attempt, self._difference(attempt))
            raise EngineRefusedError(self._strayed[attempt])
        self._turns[attempt] += 1
        return _completion(found.pop(0), sampling)

    def _difference(self, attempt: AttemptId) -> str:
        turns = self._turns[attempt]
        if not any(self._left[attempt].values()):
            return f"the episode goes on after turn {turns}, where the recording ends"
        where = f"what the model reads before turn {turns + 1}" if turns else "the prompt"
        return f"{where} is not what was recorded"


def _completion(segment: Segment, sampling: Sampling) -> Completion:
    is_cut = len(segment.ids) >= sampling.max_tokens and segment.ids[-1] not in sampling.stop_token_ids
    return Completion(segment.ids, segment.logprobs, segment.versions, "length" if is_cut else "stop")
