"""Play a game with a model: the exact expected reward, and sampled groups with the sampler's own logprobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Generator, Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from agentrl.learner.model import ATTENTION, PackedModel
from agentrl.learner.value_model import ValueModel
from agentrl.types import (
    Group,
    Message,
    SampleId,
    Segment,
    Signal,
    StopReason,
    TokenSequence,
    Trajectory,
)
from tests.unit.learning.games import VOCABULARY, Actions, Game


def new_model(layers: int, seed: int) -> PackedModel:
    """Return a randomly initialised Llama over the vocabulary of the games."""
    with seeded(seed):
        return PackedModel(LlamaForCausalLM(_config(layers)), torch.float32)


def new_critic(layers: int, seed: int) -> ValueModel:
    """Return a randomly initialised value model whose first values are 0."""
    with seeded(seed):
        model = LlamaForSequenceClassification(_config(layers))
    nn.init.zeros_(model.score.weight)
    return ValueModel(model, torch.float32)


def _config(layers: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        num_labels=1,
        attn_implementation=ATTENTION,
    )


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch for a block, and restore its generator afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def logits(model: PackedModel, contexts: Sequence[Sequence[int]]) -> Tensor:
    """Return the logits of the next token after each context, by the model's own attention instead of ours."""
    model.model.set_attn_implementation("sdpa")
    with torch.no_grad():
        out: Tensor = model.model(input_ids=torch.tensor(contexts), use_cache=False, logits_to_keep=1).logits[:, -1]
    model.model.set_attn_implementation(ATTENTION)
    return out


def expected_reward(model: PackedModel, game: Game) -> float:
    """Return the mean reward of a game over all tasks, summed over every course that it can take."""
    total = 0.0
    for task in range(len(game.prompts)):
        chances: dict[Actions, float] = {(): 1.0}
        for _ in range(game.turns):
            probs = logits(model, [game.context(task, actions) for actions in chances]).softmax(-1).tolist()
            rows = zip(chances.items(), probs, strict=True)
            chances = {(*actions, a): chance * p for (actions, chance), row in rows for a, p in enumerate(row)}
        total += sum(chance * sum(game.rewards(task, actions)) for actions, chance in chances.items())
    return total / len(game.prompts)


def sample(
    model: PackedModel,
    game: Game,
    generator: Generator,
    *,
    groups: int,
    members: int,
    greedy: int = 0,
    sharpness: float = 1.0,
) -> list[Group]:
    """Sample groups, each with `greedy` more members that take the most likely token.

    The sampler multiplies logits by `sharpness` and rounds them to bfloat16, so that its distribution differs from the
    learner's as an engine's does.
    """
    width = members + greedy
    is_greedy = torch.arange(groups * width) % width >= members
    played: list[Actions] = [()] * (groups * width)
    logprobs: list[tuple[float, ...]] = [()] * (groups * width)
    for _ in range(game.turns):
        contexts = [game.context(row // width % len(game.prompts), actions) for row, actions in enumerate(played)]
        rows = (sharpness * logits(model, contexts)).bfloat16().float().log_softmax(-1)
        chosen = torch.where(is_greedy, rows.argmax(-1), torch.multinomial(rows.exp(), 1, generator=generator)[:, 0])
        taken = rows.gather(1, chosen[:, None])[:, 0]
        played = [(*actions, action) for actions, action in zip(played, chosen.tolist(), strict=True)]
        logprobs = [(*before, value) for before, value in zip(logprobs, taken.tolist(), strict=True)]
    trajectories = [
        _trajectory(game, SampleId(row // width, row % width), actions, logprobs[row])
        for row, actions in enumerate(played)
    ]
    starts = [group * width for group in range(groups)]
    return [
        Group(
            number,
            tuple(trajectories[start : start + members]),
            tuple(trajectories[start + members : start + width]),
        )
        for number, start in enumerate(starts)
    ]


def _trajectory(game: Game, sample: SampleId, actions: Actions, logprobs: Sequence[float]) -> Trajectory:
    task = sample.group % len(game.prompts)
    segments, messages = [Segment(game.prompts[task], is_action=False)], [_message("user", game.prompts[task])]
    for turn, action in enumerate(actions):
        reply = game.replies(actions[: turn + 1])
        segments.append(Segment((action,), is_action=True, logprobs=(logprobs[turn],), turn=turn))
        messages.append(_message("assistant", (action,)))
        if turn < game.turns - 1:
            segments.append(Segment(reply, is_action=False))
            messages.append(_message("user", reply))
    scope = "turn" if game.turns > 1 else "episode"
    return Trajectory(
        sample,
        attempt=0,
        split="train",
        task_index=task,
        task_id=str(task),
        sequences=(TokenSequence(tuple(segments)),),
        messages=tuple(messages),
        signals=tuple(
            Signal("reward", value, scope=scope, turn=turn if scope == "turn" else None)
            for turn, value in enumerate(game.rewards(task, actions))
        ),
        stop_reason=StopReason.ENV_DONE,
        turns=len(actions),
    )


def _message(role: str, ids: Sequence[int]) -> Message:
    return Message(role=role, content=" ".join(map(str, ids)))
