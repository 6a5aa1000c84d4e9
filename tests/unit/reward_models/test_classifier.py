"""A reward model scores texts; the scores do not depend on the batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from agentrl.errors import ConfigError
from agentrl.reward_models.classifier import Classifier
from agentrl.reward_models.scorer import TextError
from agentrl.types import Message
from tests.tiny import tiny_model, tiny_reward_model

TEXTS = ["one", "a much longer text than the first one", "two words", "x"]


def alone(folder: Path, text: str) -> float:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.inference_mode():
        return float(model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits[0, 0])


def test_a_batch_scores_each_text_as_transformers_scores_it_alone(model: Path) -> None:
    classifier = Classifier(str(model))
    scores = classifier.scores([classifier.encode(text) for text in TEXTS])
    assert scores == pytest.approx([alone(model, text) for text in TEXTS], abs=1e-5)
    assert len(set(scores)) == len(TEXTS)


def test_a_model_without_a_pad_token_is_batched_too(tmp_path: Path) -> None:
    folder = tiny_reward_model(tmp_path, pad_token_id=None)
    classifier = Classifier(str(folder))
    scores = classifier.scores([classifier.encode(text) for text in TEXTS])
    assert scores == pytest.approx([alone(folder, text) for text in TEXTS], abs=1e-5)


def test_messages_are_rendered_by_the_chat_template_without_a_generation_prompt(model: Path) -> None:
    messages = [Message(role="user", content="Hi"), Message(role="assistant", content=[{"type": "text", "text": "Ho"}])]
    rendered = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"
    classifier = Classifier(str(model))
    assert classifier.encode(messages) == classifier.encode(rendered)


def test_a_model_without_a_chat_template_reads_its_special_tokens(tmp_path: Path) -> None:
    """An encoder was trained to score a text between [CLS] and [SEP]."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(words), num_labels=1, max_position_embeddings=16, **sizes)
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    classifier, tokenizer = Classifier(str(tmp_path)), AutoTokenizer.from_pretrained(tmp_path)
    assert classifier.encode("good bad") == tokenizer("good bad")["input_ids"] == [2, 5, 6, 3]


def test_a_text_of_as_many_tokens_as_a_model_has_positions_is_scored(tmp_path: Path) -> None:
    """RoBERTa's positions begin after that of padding: of 18 it uses 16."""
    folder = tiny_reward_model(tmp_path)  # whose tokenizer is taken
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    config = RobertaConfig(
        vocab_size=len(AutoTokenizer.from_pretrained(folder)), num_labels=1, max_position_embeddings=18, **sizes
    )
    RobertaForSequenceClassification(config).save_pretrained(tmp_path)
    classifier = Classifier(str(tmp_path))
    assert classifier.max_tokens == 16
    assert len(classifier.scores([[5] * 16])) == 1
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        classifier.scores([[5] * 17])


@pytest.mark.parametrize(("text", "kind"), [("", "empty"), ("x" * 600, "too_long")])
def test_a_text_is_never_cut_to_fit(model: Path, text: str, kind: str) -> None:
    with pytest.raises(TextError) as raised:
        Classifier(str(model)).encode(text)
    assert raised.value.kind == kind


def test_a_model_without_a_classification_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no classification head \(missing: score.weight\)"):
        Classifier(str(tiny_model(tmp_path)))


def test_a_classifier_of_several_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 3 labels; a reward model has 1"):
        Classifier(str(tiny_reward_model(tmp_path, labels=3)))


def test_a_model_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no such folder"):
        Classifier("./nowhere")


def test_a_broken_file_of_weights_is_refused(tmp_path: Path) -> None:
    folder = tiny_reward_model(tmp_path)
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        Classifier(str(folder))
