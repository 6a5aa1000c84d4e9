"""A programming problem from any source."""

from dataclasses import dataclass

from agentrl_code.cases import Test
from agentrl_code.extract import defines, is_program


@dataclass(frozen=True)
class Problem:
    """A question and its tests. The public tests may be shown to the model; the hidden ones decide."""

    key: str
    """Identity of the problem, which determines its split."""
    question: str
    hidden: tuple[Test, ...]
    public: tuple[Test, ...] = ()
    entry: str = ""
    """The requested function; '' if it is unknown or there is none."""
    setup: str = ""
    """Trusted code for the tests."""
    opening: str = ""
    """Unfinished code in the question, which an answer may continue."""
    solution: str = ""
    """A reference program; '' if there is none."""

    def program(self, answer: str) -> str:
        """Return the program of an answer: combined with the opening's imports and helpers, or as its continuation."""
        if not self.opening:
            return answer
        if not defines(answer, self.entry) and is_program(self.opening + answer):
            return self.opening + answer
        return f"{self._preamble()}\n{answer}"

    def _preamble(self) -> str:
        """Return the part of the opening before the requested function."""
        return self.opening.rpartition(f"def {self.entry}(")[0]
