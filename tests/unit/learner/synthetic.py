"""Batches for learner tests, and the loss as one would write it by hand."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, PreTrainedModel

from agentrl.algorithms import AlgorithmConfig
from agentrl.algorithms.sample import Columns, TrainSequence
from agentrl.types import SampleId
from tests.tiny import tiny_model


def batch(
    groups: int = 3, members: int = 4, seed: int = 0, temperature: float = 1.0, longest: int = 12
) -> list[TrainSequence]:
    """Groups that share a prompt; some answers have a second turn, whose context is not trained."""
    rng = random.Random(seed)
    out = []
    for group in range(groups):
        prompt = tokens(rng, rng.randint(2, 9))
        for member in range(members):
            ids, mask = [*prompt], [0] * len(prompt)
            for turn in range(rng.randint(1, 2)):
                context, answer = tokens(rng, 3 * turn), tokens(rng, rng.randint(1, longest))
                ids += context + answer
                mask += [0] * len(context) + [1] * len(answer)
            logprobs = [rng.uniform(-6.5, -5.0) * bit for bit in mask]
            advantages = [rng.gauss(0, 1) * bit for bit in mask]
            out.append(sequence(SampleId(group, member), ids, mask, logprobs, advantages, temperature))
    return out


def sequence(
    sample: SampleId,
    ids: list[int],
    mask: list[int],
    logprobs: list[float],
    advantages: list[float],
    temperature: float = 1.0,
    **columns: list[float],
) -> TrainSequence:
    """A sequence from rows over all tokens."""
    is_action = np.array(mask, dtype=np.bool_)
    rows = {"sampler": logprobs, "advantages": advantages, "weights": [1.0] * len(ids), **columns}
    arrays = {name: np.array(row, dtype=np.float32)[is_action] for name, row in rows.items()}
    tokens = np.array(ids, dtype=np.int32)
    return TrainSequence(sample, tokens, is_action, Columns(**arrays), float(is_action.sum()), temperature)


def with_advantages(sequence: TrainSequence, advantage: float) -> TrainSequence:
    """The same sequence with one advantage for all tokens."""
    return sequence.with_columns(advantages=np.full(sequence.actions, advantage, dtype=np.float32))


def with_values(sequences: list[TrainSequence], seed: int = 0) -> list[TrainSequence]:
    """The same sequences with old values and returns, such as a critic learns from."""
    random = np.random.default_rng(seed)
    rows = ((s, random.normal(size=(2, s.actions)).astype(np.float32)) for s in sequences)
    return [s.with_columns(values=values, returns=returns) for s, (values, returns) in rows]


def tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(3, 320) for _ in range(count)]


def plain_logprobs(model: PreTrainedModel, sequences: list[TrainSequence]) -> tuple[Tensor, Tensor]:
    """Logprobs of ids[1:] and their mask [sequences, longest - 1], right-padded, by transformers alone."""
    rows = [torch.tensor(s.ids.tolist()) for s in sequences]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    seen = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    logits = model(input_ids=ids, attention_mask=seen).logits[:, :-1]
    logits = logits / torch.tensor([s.temperature for s in sequences])[:, None, None]
    return torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None]).squeeze(2), padded(sequences, "mask")


def padded(sequences: list[TrainSequence], name: str) -> Tensor:
    """A column over all tokens, 0 on context; or the mask."""
    rows = []
    for s in sequences:
        row = torch.zeros(len(s.ids))
        row[torch.from_numpy(s.mask)] = 1.0 if name == "mask" else torch.from_numpy(getattr(s.columns, name))
        rows.append(row)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)[:, 1:]


def plain_loss(model: PreTrainedModel, sequences: list[TrainSequence], section: AlgorithmConfig) -> Tensor:
    """The GRPO family's loss, token mean, old logprobs = the learner's own; padded PyTorch."""
    logprobs, mask = plain_logprobs(model, sequences)
    weight = (logprobs.detach() - padded(sequences, "sampler")).exp().clamp(max=section.tis_cap)
    ratio, advantages = (logprobs - logprobs.detach()).exp(), padded(sequences, "advantages")
    clipped = ratio.clamp(1 - section.clip_low, 1 + section.clip_high)
    loss = -weight * torch.minimum(ratio * advantages, clipped * advantages)
    return (loss * mask).sum() / mask.sum()


def plain_kl(model: PreTrainedModel, reference: PreTrainedModel, sequences: list[TrainSequence], cap: float) -> Tensor:
    """A scalar whose gradient is that of the token mean of KL(model || reference), over the sampler's tokens."""
    logprobs, mask = plain_logprobs(model, sequences)
    with torch.no_grad():
        others, _ = plain_logprobs(reference, sequences)
    weight = (logprobs.detach() - padded(sequences, "sampler")).exp().clamp(max=cap)
    return (weight * (logprobs.detach() - others) * logprobs * mask).sum() / mask.sum()


def plain_value_loss(model: PreTrainedModel, sequences: list[TrainSequence], clip: float) -> tuple[Tensor, float]:
    """The critic's loss in padded PyTorch, from the value at the token before each action; the share it clips."""
    rows = [torch.tensor(s.ids.tolist()) for s in sequences]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    seen = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    hidden = model.base_model(input_ids=ids, attention_mask=seen).last_hidden_state
    values, mask = model.score(hidden)[:, :-1, 0], padded(sequences, "mask")
    returns, old, weights = (padded(sequences, name) for name in ("returns", "values", "weights"))
    clipped = old + (values - old).clamp(-clip, clip)
    plain_error, clipped_error = (values - returns) ** 2, (clipped - returns) ** 2
    losses = 0.5 * torch.maximum(plain_error, clipped_error)
    share = ((clipped_error > plain_error) * mask).sum() / mask.sum()
    return (losses * weights).sum() / sum(s.share for s in sequences), share.item()


def reward_model(folder: Path, labels: int = 1) -> Path:
    """A tiny model with a classification head that is not 0."""
    tiny_model(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=labels)
    model.score.weight.data = torch.linspace(-1, 1, labels * 64).reshape(labels, 64)
    model.save_pretrained(folder)
    return folder


def plain_model(folder: object, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    return model
