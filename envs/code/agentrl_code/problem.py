"""One programming problem, wherever it comes from."""

from dataclasses import dataclass

from agentrl_code.cases import Test
from agentrl_code.extract import defines, is_program


@dataclass(frozen=True)
class Problem:
    """What is asked, and how an answer is graded. The public tests may be shown; the hidden ones decide."""

    key: str
    """What the splits are made by: the same for problems that are the same."""
    question: str
    hidden: tuple[Test, ...]
    public: tuple[Test, ...] = ()
    entry: str = ""
    """The function asked for; '' where it is not known or none is."""
    setup: str = ""
    """Trusted code for the tests."""
    opening: str = ""
    """Code that the question begins with and leaves unfinished; an answer may go on from there."""
    solution: str = ""
    """A reference program; '' where there is none."""

    def program(self, answer: str) -> str:
        """The program that an answer amounts to: with the opening's imports and helpers, or as its continuation."""
        if not self.opening:
            return answer
        if not defines(answer, self.entry) and is_program(self.opening + answer):
            return self.opening + answer
        return f"{self._preamble()}\n{answer}"

    def _preamble(self) -> str:
        """Return the opening before the function that is asked for."""
        return self.opening.rpartition(f"def {self.entry}(")[0]
