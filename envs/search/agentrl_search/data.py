"""Questions with their gold answers and evidence, read from HotpotQA's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl_tools import Document

from agentrl.env import is_in_share, json_lines, parse_json
from agentrl.errors import DataError


@dataclass(frozen=True)
class Question:
    """A question: any of `golds` answers it, and the documents with these titles prove the answer."""

    id: str
    text: str
    golds: tuple[str, ...]
    titles: tuple[str, ...]


def read_questions(path: Path) -> tuple[list[Question], list[Document]]:
    """Return the questions of a JSONL or JSON file, and the documents in their rows, each title once."""
    questions, documents = list[Question](), dict[str, Document]()
    for location, row in read_rows(path):
        questions.append(as_question(row, location))
        for document in as_documents(row.get("context") or (), location):
            documents.setdefault(document.title, document)
    if not questions:
        raise DataError(f"{path}: contains no rows")
    return questions, list(documents.values())


def is_held_out(question: Question, share: float) -> bool:
    """Return whether a question is held out; a hash of its text decides, not order or seed."""
    return is_in_share(f"agentrl-search/{question.text}", share)


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row of a JSONL file or a JSON list, with its location."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix != ".json":
        yield from json_lines(path)
        return
    for number, row in enumerate(parse_json(path.read_bytes(), path.name), 1):
        yield f"{path.name}, row {number}", row


def as_question(row: Any, location: str) -> Question:
    """Read a row: `question`, `answer` (or a list `golden_answers`), and evidence in any of HotpotQA's formats."""
    if not isinstance(row, dict) or not isinstance(row.get("question"), str):
        raise DataError(f"{location}: must be an object with a question")
    golds = row.get("golden_answers", row.get("answer"))
    golds = [golds] if isinstance(golds, str) else golds
    if not isinstance(golds, list) or not all(isinstance(gold, str) and gold.strip() for gold in golds) or not golds:
        raise DataError(f"{location}: has no answer; give `answer`, or a list `golden_answers`")
    titles = row.get("supporting_titles")
    if titles is None:
        facts = row.get("supporting_facts") or ()
        titles = facts["title"] if isinstance(facts, Mapping) else [fact[0] for fact in facts]
    identity = str(row.get("id") or row.get("_id") or location)
    return Question(identity, row["question"], tuple(golds), tuple(dict.fromkeys(titles)))


def as_documents(context: Any, location: str) -> Iterator[Document]:
    """Yield the paragraphs of a row: [title, sentences] pairs, objects, or one object of two lists."""
    try:
        for title, sentences in pairs(context):
            yield Document(title, "".join(sentences))
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{location}: the context is not in HotpotQA's format: {error!r}") from None


def pairs(context: Any) -> Iterable[tuple[str, Iterable[str]]]:
    """(title, sentences) of each paragraph."""
    if isinstance(context, Mapping):
        return zip(context["title"], context["sentences"], strict=True)
    return [(p["title"], p["sentences"]) if isinstance(p, Mapping) else (p[0], p[1]) for p in context]
