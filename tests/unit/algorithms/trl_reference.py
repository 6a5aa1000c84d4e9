"""Print the advantages that TRL's trainers give to one fixed batch: the constants of test_trl.py.

Run it with a Python that has TRL 1.16: `python -m tests.unit.algorithms.trl_reference`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

REWARDS = (1.0, 0.0, 0.0, 1.0, 0.3, -2.0, 0.7, 0.7)
GROUP = 4


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


def main() -> None:
    """Print the advantages of the three estimators."""
    import trl

    from tests.tiny import tiny_model

    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(Path(folder))
        print("trl", trl.__version__)
        print("grpo", advantages(trl.GRPOTrainer, trl.GRPOConfig, model))
        print("dr_grpo", advantages(trl.GRPOTrainer, trl.GRPOConfig, model, loss_type="dr_grpo", scale_rewards=False))
        print("rloo", advantages(trl.RLOOTrainer, trl.RLOOConfig, model))


if __name__ == "__main__":
    main()
