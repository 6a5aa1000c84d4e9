"""A sequence-classification model with one label, as a function from token ids to scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from agentrl.config.models import locate
from agentrl.errors import ConfigError, catch
from agentrl.reward_models.scorer import Ids, TextError
from agentrl.types import Message, text_of


class Classifier:
    """A reward model of transformers, with its tokenizer. Not thread-safe: `scores` is called by one thread."""

    def __init__(self, name: str, device: str = "auto", dtype: str = "auto", max_tokens: int = 0) -> None:
        """Load the model `name`, a folder or hub id; `max_tokens` 0 is the model's own limit.

        Raises ConfigError if there is no such model, or if it has no classification head with one label.
        """
        self.name, folder = name, locate(name)
        self.device = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
        self._model = _loaded(name, folder, dtype).to(self.device).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._is_padded = self._model.config.pad_token_id is not None
        self.max_tokens = max_tokens or min(_positions(self._model), self._tokenizer.model_max_length)

    def encode(self, given: str | Sequence[Message]) -> list[int]:
        """Return the token ids of a text, or of a conversation by the model's chat template.

        The special tokens of a model without a template, such as [CLS], are added; a rendered text has its own.

        Raises TextError if it has no tokens or too many: the score of a cut text would be that of another text.
        """
        text = given if isinstance(given, str) else self._rendered(given)
        is_plain = not self._tokenizer.chat_template
        ids: list[int] = self._tokenizer(text, add_special_tokens=is_plain)["input_ids"]
        if not ids:
            raise TextError("empty", "the text is empty")
        if len(ids) > self.max_tokens:
            raise TextError("too_long", f"the text has {len(ids)} tokens; the model reads at most {self.max_tokens}")
        return ids

    @torch.inference_mode()
    def scores(self, batch: Sequence[Ids]) -> list[float]:
        """Return the score of each row."""
        pad = self._pad(batch)
        length = max(map(len, batch))
        ids = torch.tensor([[*row, *[pad] * (length - len(row))] for row in batch], device=self.device)
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in batch], device=self.device)
        logits = self._model(input_ids=ids, attention_mask=mask).logits  # [batch, 1]
        scores: list[float] = logits[:, 0].float().tolist()
        return scores

    def _pad(self, batch: Sequence[Ids]) -> int:
        """Return the token to pad with. The model reads its score at the last token that is not this one."""
        if self._is_padded:
            return int(self._model.config.pad_token_id)
        used = {token for row in batch for token in row}
        self._model.config.pad_token_id = pad = next(token for token in range(len(used) + 1) if token not in used)
        return pad

    def _rendered(self, messages: Sequence[Message]) -> str:
        if not self._tokenizer.chat_template:
            raise TextError("no_template", f"{self.name} has no chat template: send the rendered text instead")
        plain = [{**message, "content": text_of(message)} for message in messages]
        rendered = catch(lambda: self._tokenizer.apply_chat_template(plain, tokenize=False))
        if rendered.error is not None:
            raise TextError("template", f"the chat template of {self.name} refuses the messages: {rendered.error}")
        return str(rendered.value)


def _loaded(name: str, folder: Path, dtype: str) -> Any:
    outcome = catch(
        lambda: AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    )
    if outcome.error is not None:
        raise ConfigError(f"reward model {name}: {folder} cannot be loaded: {outcome.error}") from outcome.error
    model, info = outcome.value
    if missing := sorted(info["missing_keys"]):
        raise ConfigError(
            f"reward model {name}: its weights have no classification head (missing: {', '.join(missing)}). Give a "
            "model that was trained as a reward model, saved as a ...ForSequenceClassification"
        )
    if model.config.num_labels != 1:
        raise ConfigError(f"reward model {name}: its head has {model.config.num_labels} labels; a reward model has 1")
    return model


def _positions(model: Any) -> int:
    """Return how many tokens a model has positions for. RoBERTa's kind begins to count them after that of padding."""
    own: int = getattr(model.config, "max_position_embeddings", None) or 1 << 30
    padded = (module for name, module in model.named_modules() if name.endswith("position_embeddings"))
    reserved = (module.padding_idx + 1 for module in padded if getattr(module, "padding_idx", None) is not None)
    return own - max(reserved, default=0)
