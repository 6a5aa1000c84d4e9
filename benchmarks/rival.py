"""TRL's GRPOTrainer as it ships on a CPU: transformers generates, torch trains. Runs in a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MISSING = """TRL is not installed. This benchmark needs trl 1.16.0 and datasets 5.2.0 beside agentrl. So that the
project's environment stays as it is, give them one of their own that sees it:
    python -m venv /tmp/versus-trl
    echo "import site; site.addsitedir('$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')')" \\
        > /tmp/versus-trl/lib/python3.11/site-packages/agentrl-site.pth
    /tmp/versus-trl/bin/pip install --no-deps trl==1.16.0 datasets==5.2.0 multiprocess xxhash pandas pytz six
    /tmp/versus-trl/bin/python -m benchmarks.versus_trl"""


@dataclass(frozen=True, slots=True)
class Question:
    """A task as TRL takes it."""

    text: str
    gold: str


@dataclass(frozen=True, slots=True)
class RivalSpec:
    """The settings of one GRPOTrainer; `weights` is the type that generation runs in, training is autocast to bf16."""

    model: Path
    questions: tuple[Question, ...]
    prompts: int
    group_size: int
    max_tokens: int
    out: Path
    lr: float = 2e-5
    micro_batch: int = 16
    weights: str = "bfloat16"
    is_bf16: bool = True


def trainer_of(spec: RivalSpec, callbacks: Sequence[Any] = ()) -> Any:
    """A GRPOTrainer with agentrl's loss: a token mean over the whole step, clip-higher, no KL."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    samples = spec.prompts * spec.group_size
    config = GRPOConfig(
        output_dir=str(spec.out),
        use_cpu=True,
        bf16=spec.is_bf16,
        gradient_checkpointing=False,  # its default is True, which would be slower here
        per_device_train_batch_size=min(spec.micro_batch, samples),
        gradient_accumulation_steps=samples // min(spec.micro_batch, samples),
        num_generations=spec.group_size,
        max_completion_length=spec.max_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        loss_type="dapo",  # the token mean over the optimizer step
        scale_rewards="group",
        epsilon=0.2,
        epsilon_high=0.28,
        learning_rate=spec.lr,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        max_grad_norm=1.0,
        max_steps=1 << 20,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1,
    )
    rows = [{"prompt": [{"role": "user", "content": q.text}], "gold": q.gold} for q in spec.questions]
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(spec.model, dtype=getattr(torch, spec.weights)),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(spec.model),
        callbacks=list(callbacks),
    )


def reward(completions: list[Any], gold: list[str], **_: Any) -> list[float]:
    """The verdict of envs/math."""
    from agentrl_math import verify

    return [
        float(verify(text[0]["content"], answer, fallback="number").reward or 0.0)
        for text, answer in zip(completions, gold, strict=True)
    ]


class Rival:
    """Trains in a thread that pauses between steps."""

    def __init__(self, spec: RivalSpec) -> None:
        from transformers import TrainerCallback

        turn = self._turn = Turn()

        class Stand(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, *_: Any, **__: Any) -> None:
                turn.begin()

            def on_step_end(self, *_: Any, **__: Any) -> None:
                turn.end()

        self._trainer = trainer_of(spec, [Stand()])
        threading.Thread(target=self._trainer.train, daemon=True).start()

    def step(self) -> dict[str, float]:
        """One optimizer step: its seconds, from the first prompt to the last weight."""
        seconds = self._turn.take()
        history: list[dict[str, float]] = self._trainer.state.log_history
        lengths = [row["completions/mean_length"] for row in history if "completions/mean_length" in row]
        return {"seconds": seconds, "mean_length": lengths[-1] if lengths else float("nan")}


class Turn:
    """One thread asks for a turn and waits for its end; the other waits to be asked."""

    def __init__(self) -> None:
        self._asked, self._done = threading.Event(), threading.Event()
        self._began = self._seconds = 0.0

    def take(self) -> float:
        """Ask for a turn; its seconds."""
        self._done.clear()
        self._asked.set()
        if not self._done.wait(1200.0):
            raise RuntimeError("TRL did not finish a step within 1200 s")
        return self._seconds

    def begin(self) -> None:
        """Wait until a turn is asked for."""
        self._asked.wait()
        self._asked.clear()
        self._began = time.perf_counter()

    def end(self) -> None:
        """The turn is over."""
        self._seconds = time.perf_counter() - self._began
        self._done.set()


@dataclass(frozen=True, slots=True)
class Fixed:
    """A batch that both sides are given: prompt, completion and one advantage for each sample."""

    prompts: tuple[tuple[int, ...], ...]
    completions: tuple[tuple[int, ...], ...]
    advantages: tuple[float, ...]


class RivalLoss:
    """TRL's loss and gradient on a batch it is given."""

    def __init__(self, spec: RivalSpec) -> None:
        self._trainer = trainer_of(spec)
        self._trainer.create_optimizer()

    def loss_and_norm(self, batch: Fixed) -> tuple[float, float]:
        """(loss, gradient norm) of one optimizer step, before clipping."""
        trainer = self._trainer
        trainer.current_gradient_accumulation_steps = 1
        model = trainer.model.train()
        prompts, seen = padded(batch.prompts, is_left=True)
        completions, mask = padded(batch.completions, is_left=False)
        inputs = {
            "prompt_ids": prompts, "prompt_mask": seen, "completion_ids": completions, "completion_mask": mask,
            "advantages": torch.tensor(batch.advantages), "num_items_in_batch": mask.sum(),
        }  # fmt: skip
        loss = trainer.compute_loss(model, inputs)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        return float(loss.detach()), float(norm)


def padded(rows: Sequence[Sequence[int]], *, is_left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask, [rows, longest]."""
    longest = max(map(len, rows))
    ids, mask = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(longest - len(row), longest) if is_left else slice(0, len(row))
        ids[number, place], mask[number, place] = torch.tensor(row), 1
    return ids, mask
