"""Questions with their gold answers and evidence, and how they are read from HotpotQA's files."""

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
    """A question: any of the golds answers it, the documents with these titles prove it."""

    id: str
    text: str
    golds: tuple[str, ...]
    titles: tuple[str, ...]


def read_questions(path: Path) -> tuple[list[Question], list[Document]]:
    """The questions of a JSONL or JSON file, and the documents that their rows bring, each title once."""
    questions, documents = list[Question](), dict[str, Document]()
    for place, row in read_rows(path):
        questions.append(as_question(row, place))
        for document in as_documents(row.get("context") or (), place):
            documents.setdefault(document.title, document)
    if not questions:
        raise DataError(f"{path}: holds no rows")
    return questions, list(documents.values())


def is_held_out(question: Question, share: float) -> bool:
    """Whether a question is on the held-out side: by a hash of its text, so that no order or seed moves it."""
    return is_in_share(f"agentrl-search/{question.text}", share)


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each row with its place: lines of JSON, or one list."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix != ".json":
        yield from json_lines(path)
        return
    for number, row in enumerate(parse_json(path.read_bytes(), path.name), 1):
        yield f"{path.name}, row {number}", row


def as_question(row: Any, place: str) -> Question:
    """One row: `question`, `answer` (or a list `golden_answers`), and its evidence in any of HotpotQA's forms."""
    if not isinstance(row, dict) or not isinstance(row.get("question"), str):
        raise DataError(f"{place}: must be an object with a question")
    golds = row.get("golden_answers", row.get("answer"))
    golds = [golds] if isinstance(golds, str) else golds
    if not isinstance(golds, list) or not all(isinstance(gold, str) and gold.strip() for gold in golds) or not golds:
        raise DataError(f"{place}: has no answer; give `answer`, or a list `golden_answers`")
    titles = row.get("supporting_titles")
    if titles is None:
        facts = row.get("supporting_facts") or ()
        titles = facts["title"] if isinstance(facts, Mapping) else [fact[0] for fact in facts]
    identity = str(row.get("id") or row.get("_id") or place)
    return Question(identity, row["question"], tuple(golds), tuple(dict.fromkeys(titles)))


def as_documents(context: Any, place: str) -> Iterator[Document]:
    """The paragraphs of a row: [title, sentences] pairs, objects, or one object of two lists."""
    try:
        for title, sentences in pairs(context):
            yield Document(title, "".join(sentences))
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{place}: the context is not in HotpotQA's form: {error!r}") from None


def pairs(context: Any) -> Iterable[tuple[str, Iterable[str]]]:
    """(title, sentences) of each paragraph."""
    if isinstance(context, Mapping):
        return zip(context["title"], context["sentences"], strict=True)
    return [(p["title"], p["sentences"]) if isinstance(p, Mapping) else (p[0], p[1]) for p in context]
