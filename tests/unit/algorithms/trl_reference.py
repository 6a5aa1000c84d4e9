"""Print the advantages that TRL's trainers give to one fixed batch: the constants of test_trl.py.

Run it with a Python that has TRL 1.16: `python -m tests.unit.algorithms.trl_reference`.
"""

from __future__ import annotations

import importlib.util
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

REWARDS = (1.0, 0.0, 0.0, 1.0, 0.3, -2.0, 0.7, 0.7)
GROUP = 4
LENGTHS = (3, 5, 2, 4, 1, 5, 4, 2)
"""Tokens of each completion, for what depends on them."""
LIMIT, BUFFER, BETA = 5, 3, 0.2


def logprobs(seed: int) -> list[list[float]]:
    """Logprobs of the tokens of each completion, in float32."""
    rng = np.random.default_rng(seed)
    return [rng.normal(-1.0, 0.5, length).astype(np.float32).tolist() for length in LENGTHS]


OLD, REFERENCE = logprobs(1), logprobs(2)


def advantages(trainer_class: Any, config_class: Any, model: Path, **settings: Any) -> list[float]:
    """The advantages of one batch of eight completions, whose rewards are REWARDS."""
    from datasets import Dataset

    found: list[float] = []

    class Recording(trainer_class):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            found[:] = output["advantages"].tolist()
            return output

    def reward(completions: list[Any], **columns: Any) -> list[float]:
        return list(REWARDS)

    arguments = config_class(
        output_dir=str(model / "out"), per_device_train_batch_size=8, num_generations=GROUP, max_completion_length=4,
        max_steps=1, beta=0.0, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, **settings,
    )  # fmt: skip
    data = Dataset.from_dict({"prompt": [[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]]})
    Recording(model=str(model), reward_funcs=reward, args=arguments, train_dataset=data).train()
    return found


def overlong() -> list[float]:
    """The soft overlong punishment of each completion."""
    from trl.rewards import get_soft_overlong_punishment

    punishments: list[float] = get_soft_overlong_punishment(LIMIT, BUFFER)([[1] * length for length in LENGTHS])
    return punishments


def rloo_with_kl() -> list[float]:
    """The advantages of RLOO with a KL in the reward: the lines of `_generate_and_score_completions` that make them."""
    found = importlib.util.find_spec("trl.trainer.rloo_trainer")
    assert found is not None
    assert found.origin is not None
    source = Path(found.origin).read_text()
    start = source.index("        # Include the KL penalty in the reward\n")
    stop = source.index("        # Normalize advantages over the scorable subset only")
    names: dict[str, Any] = {
        "self": SimpleNamespace(beta=BETA),
        "torch": torch,
        "gather": lambda values: values,
        "nanstd": lambda values, dim: values.std(dim),  # for its log alone
        "num_generations": GROUP,
        "rewards": torch.tensor(REWARDS),
        "completion_mask": padded([[1.0] * length for length in LENGTHS]),
        "old_per_token_logps": padded(OLD),
        "ref_per_token_logps": padded(REFERENCE),
    }
    exec(textwrap.dedent(source[start:stop]), names)  # noqa: S102 (the lines of TRL)
    values: list[float] = names["advantages"].tolist()
    return values


def padded(rows: list[list[float]]) -> torch.Tensor:
    """Rows [completions, longest] in float32, 0 on padding."""
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def main() -> None:
    """Print the advantages of the three estimators, and what depends on lengths and logprobs."""
    import trl

    from tests.tiny import tiny_model

    print("overlong", overlong())
    print("rloo_kl", rloo_with_kl())
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(Path(folder))
        print("trl", trl.__version__)
        print("grpo", advantages(trl.GRPOTrainer, trl.GRPOConfig, model))
        print("dr_grpo", advantages(trl.GRPOTrainer, trl.GRPOConfig, model, loss_type="dr_grpo", scale_rewards=False))
        print("rloo", advantages(trl.RLOOTrainer, trl.RLOOConfig, model))


if __name__ == "__main__":
    main()
