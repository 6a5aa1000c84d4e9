"""A served model that needs no model: the score of a text is its length."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from agentrl.reward_models.batcher import BatchLimits
from agentrl.reward_models.scorer import Ids, TextError
from agentrl.reward_models.server import RewardServer, ServerLimits
from agentrl.types import Message

NOW = BatchLimits(wait_s=0.0)


@dataclass
class Lengths:
    """Scores a text by its length; "nan", "fail" and "long" do what they say, and a closed gate holds every batch.

    A text that begins with "~" fails. After "break" it scores nothing any more, until it is mended.
    """

    name: str = "lengths"
    gate: threading.Event = field(default_factory=threading.Event)
    batches: list[int] = field(default_factory=list)
    began: threading.Event = field(default_factory=threading.Event)
    is_broken: bool = False

    def encode(self, given: str | Sequence[Message]) -> list[int]:
        text = given if isinstance(given, str) else str(given[-1]["content"])
        if text == "long":
            raise TextError("too_long", "the text has 9 tokens; the model reads at most 3")
        return [ord(letter) for letter in text]

    def scores(self, batch: Sequence[Ids]) -> list[float]:
        self.batches.append(len(batch))
        self.began.set()
        assert self.gate.wait(30)
        texts = ["".join(map(chr, row)) for row in batch]
        self.is_broken |= "break" in texts
        if self.is_broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        if "fail" in texts or any(text.startswith("~") for text in texts):
            raise RuntimeError("out of memory")
        return [float("nan") if text == "nan" else float(len(text)) for text in texts]


@asynccontextmanager
async def serving(
    scorer: Lengths | None = None, token: str = "", *, limits: ServerLimits | None = None, is_open: bool = True
) -> AsyncIterator[httpx.AsyncClient]:
    scorer = scorer or Lengths()
    if is_open:
        scorer.gate.set()
    server = RewardServer(scorer, token, limits or ServerLimits(NOW))
    try:
        async with server.listening() as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        scorer.gate.set()
