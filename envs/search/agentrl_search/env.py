"""The environment: a question, a search tool over a corpus, and an answer."""
# ruff: noqa: ARG002  (some hooks do not use their context)

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from agentrl_tools import Document, HttpSearch, Index, Search, read_corpus
from agentrl_tools.search import Retriever
from pydantic import Field

from agentrl.env import Context, Env, EnvConfig, Limits, Message, Policy, QuestionTemplate, Signal, Task, reward, shared
from agentrl.types import ToolCall
from agentrl_search import world
from agentrl_search.answers import exact_match, f1, given_answer, normalised
from agentrl_search.data import Question, is_held_out, read_questions

TEMPLATE = "{question}\n\nSearch for what you need, then answer in a few words between <answer> and </answer>."
TEST_SIZE = 256
Library: TypeAlias = tuple[Sequence[Question], Sequence[Document]]


class SearchConfig(EnvConfig):
    """The `--env.*` keys."""

    hops: Literal[1, 2, 3] = Field(2, description="documents needed for a question about the built-in world")
    data: Path | None = Field(None, description="JSONL or JSON file of questions in HotpotQA's format, used instead")
    corpus: Path | None = Field(None, description="JSONL file of documents; default: those of the questions")
    service: HttpSearch | None = Field(None, description="search service over HTTP, used instead of a corpus")
    heldout_share: float = Field(0.2, gt=0, lt=1, description="share of the questions held out")
    k: int = Field(3, ge=1, le=20, description="documents that a search shows")
    max_characters: int = Field(1000, ge=50, description="characters of a document that a search shows")
    searches: int = Field(4, ge=1, le=32, description="searches per episode; further ones are rejected")
    score: Literal["exact", "f1"] = Field("exact", description="reward `right`: exact match, or F1 of words")
    template: QuestionTemplate = Field(TEMPLATE, min_length=1, description="user message that contains {question}")


class SearchEnv(Env):
    """Answer a question of several hops with the help of a search tool."""

    Config = SearchConfig
    config: SearchConfig
    limits = Limits(max_turns=8)
    blocking = False

    def preflight(self) -> str:
        """Check that the questions and the corpus can be read."""
        if self.config.data is not None:
            read_questions(self.config.data)
        if self.config.corpus is not None:
            next(read_corpus(self.config.corpus), None)
        return ""

    @shared
    async def library(self) -> Library:
        """The questions, and their documents."""
        return await asyncio.to_thread(load, self.config)

    @shared
    async def retriever(self) -> Retriever:
        """The search over the documents."""
        if self.config.service is not None:
            return self.config.service
        return await asyncio.to_thread(Index, self.library[1])

    def tasks(self, split: str) -> list[Task]:
        """Return the questions of this split; of the built-in world's held-out ones, the first 256."""
        share, is_test = self.config.heldout_share, split == "test"
        chosen = [question for question in self.library[0] if is_held_out(question, share) == is_test]
        return [Task(q.id, q) for q in (chosen[:TEST_SIZE] if is_test and self.config.data is None else chosen)]

    def tools(self, ctx: Context) -> list[Search]:
        """Return the search tool of this episode."""
        shown = ctx.state.shown = set[str]()

        def note(found: Sequence[Document]) -> None:
            shown.update(document.title for document in found)

        config = self.config
        return [Search(self.retriever, config.k, config.max_characters, config.searches, note)]

    def setup(self, task: Task, ctx: Context) -> list[Message]:
        """Return the question."""
        return [Message(role="user", content=self.config.template.replace("{question}", task.data.text))]

    @reward
    def right(self, ctx: Context) -> Signal:
        """1 for the gold answer (or its F1), 0 for another."""
        judge = exact_match if self.config.score == "exact" else f1
        answer = given_answer(ctx.text)
        return Signal("right", judge(answer, ctx.task.data.golds), evidence=normalised(answer)[:200])

    @reward(weight=0.2)
    def evidence(self, ctx: Context) -> float:
        """Return the share of the supporting documents that a search has shown."""
        titles = ctx.task.data.titles
        return len(ctx.state.shown.intersection(titles)) / len(titles) if titles else 0.0

    @reward(weight=0)
    def overlap(self, ctx: Context) -> float:
        """Return the F1 of the answer; recorded only."""
        return f1(given_answer(ctx.text), ctx.task.data.golds)

    def oracle(self, task: Task) -> Policy:
        """Searches for each supporting document, then gives the gold answer."""
        answer = f"<answer>{task.data.golds[0]}</answer>"
        return [searching(*task.data.titles), answer] if task.data.titles else [answer]

    def canaries(self, task: Task) -> Mapping[str, Policy]:
        """Policies that talk about the question without answering it."""
        question: Question = task.data
        return {
            "silence": [""],
            "an empty answer": ["<answer></answer>"],
            "the question again": [f"<answer>{question.text}</answer>"],
            "every name in the world": [f"<answer>{' '.join([*question.golds, *world.world().kinds])}</answer>"],
            "does not know": ["<answer>I do not know</answer>"],
        }


def load(config: SearchConfig) -> Library:
    """Load the built-in world, or the files."""
    questions, documents = world.library(config.hops) if config.data is None else read_questions(config.data)
    return questions, documents if config.corpus is None else list(read_corpus(config.corpus))


def searching(*queries: str) -> Message:
    """Return an assistant's turn of searches."""
    calls = [ToolCall(type="function", function={"name": "search", "arguments": {"query": q}}) for q in queries]
    return Message(role="assistant", content="", tool_calls=calls)
