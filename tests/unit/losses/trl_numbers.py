"""Print losses and gradients of TRL 1.16.0 on a fixed batch, for test_trl.py.

Run `python -m tests.unit.losses.trl_numbers` in an environment that has trl==1.16.0. TRL's own `_compute_loss` runs,
and for the modes of importance sampling the lines of `_generate_and_score_completions` that make the ratio.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import textwrap
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.unit.losses.tokens import Rows, random_rows

SEED, MAX_TOKENS = 13, 16
BASE = {
    "loss_type": "dapo",
    "importance_sampling_level": "token",
    "epsilon_low": 0.2,
    "epsilon_high": 0.28,
    "beta": 0.0,
    "max_completion_length": MAX_TOKENS,
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
}
CASES: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "dapo": {},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.3},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.05, "epsilon_high": 0.05},
    "dual_clip": {"delta": 1.4},
    "kl": {"beta": 0.3},
    "entropy": {"entropy_coef": 0.2},
    "token_truncate": {"vllm_importance_sampling_mode": "token_truncate", "clip": (None, 1.3)},
    "token_mask": {"vllm_importance_sampling_mode": "token_mask", "clip": (0.8, 1.3)},
    "sequence_truncate": {"vllm_importance_sampling_mode": "sequence_truncate", "clip": (None, 1.3)},
    "sequence_mask": {"vllm_importance_sampling_mode": "sequence_mask", "clip": (0.5, 1.3)},
}


def batch() -> Rows:
    """Tokens that share the advantage of their sequence, none masked."""
    return random_rows(SEED, 0.3, shared_advantage=True, masked=0.0)


def padded(rows: Rows, name: str) -> Tensor:
    """A column [sequences, longest] in float32, 0 on padding."""
    columns = [torch.tensor([getattr(token, name) for token in row]) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(columns, batch_first=True)


def main() -> None:
    """Print {case: [loss, gradient of each token's logprob]}."""
    module = importlib.import_module("trl.trainer.grpo_trainer")
    print(json.dumps({name: numbers(module, keys) for name, keys in CASES.items()}))


def numbers(module: Any, keys: dict[str, Any]) -> list[Any]:
    """Return TRL's loss and its gradient."""
    rows, keys = batch(), {**BASE, **keys}
    trainer = _trainer(module, keys)
    logprobs = padded(rows, "own").requires_grad_()
    mask, old = padded(rows, "weight"), padded(rows, "old")
    trainer._get_per_token_logps_and_entropies = lambda *args, **more: (logprobs, padded(rows, "entropy"), None)
    inputs = {
        **{name: torch.zeros_like(mask, dtype=torch.long) for name in ("prompt_ids", "prompt_mask", "completion_ids")},
        "completion_mask": mask,
        "advantages": torch.tensor([row[0].advantage for row in rows]),
        "old_per_token_logps": old,
        "ref_per_token_logps": padded(rows, "reference"),
        "num_items_in_batch": mask.sum(),
    }
    if trainer.use_vllm:
        inputs["importance_sampling_ratio"] = _ratio(module, trainer, mask, old, padded(rows, "sampler"))
    loss = trainer._compute_loss(None, inputs)
    loss.backward()
    assert logprobs.grad is not None
    return [round(loss.item(), 8), [round(value, 8) for value in logprobs.grad[mask == 1].tolist()]]


def _trainer(module: Any, keys: dict[str, Any]) -> Any:
    """A trainer with the attributes that the loss reads, and None for all others."""

    class Trainer(module.GRPOTrainer):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.__dict__ |= {key: value for key, value in keys.items() if key != "clip"}

        def __getattr__(self, name: str) -> None:
            return None

    trainer = Trainer()
    low, high = keys.get("clip", (None, None))
    trainer.vllm_importance_sampling_clip_min, trainer.vllm_importance_sampling_clip_max = low, high
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = "clip" in keys
    trainer._entropy_bonus_enabled = keys["entropy_coef"] > 0
    trainer.args = SimpleNamespace(delta=keys.get("delta"), use_bias_correction_kl=True, steps_per_generation=1)
    trainer.model = SimpleNamespace(training=True)
    trainer.current_gradient_accumulation_steps = 1
    gathered = SimpleNamespace(gather=lambda x: x, reduce=lambda x, **more: x, num_processes=1, sync_gradients=True)
    trainer.accelerator = gathered
    trainer._metrics = {"train": _Anything()}
    return trainer


class _Anything(dict[str, list[float]]):
    def __missing__(self, name: str) -> list[float]:
        return []


def _ratio(module: Any, trainer: Any, mask: Tensor, old: Tensor, sampler: Tensor) -> Tensor:
    source = inspect.getsource(module.GRPOTrainer._generate_and_score_completions)
    start = source.index("                mask = completion_mask if tool_mask is None")
    stop = source.index("            # Compute the per-token log probabilities for the reference model")
    names = {
        "self": trainer,
        "torch": torch,
        "math": math,
        "tool_mask": None,
        "completion_mask": mask,
        "old_per_token_logps": old,
        "sampling_per_token_logps": sampler,
    }
    exec(textwrap.dedent(source[start:stop]), names)  # noqa: S102 (the lines of TRL)
    ratio: Tensor = names["vllm_importance_sampling_ratio"]  # type: ignore[assignment]
    return ratio


if __name__ == "__main__":
    main()
