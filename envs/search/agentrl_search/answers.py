"""Exact match and F1 of words between an answer and the gold ones, after SQuAD's normalisation.

Sources: Rajpurkar et al. 2016 (arXiv:1606.05250), its evaluate-v1.1.py; Yang et al. 2018 (arXiv:1809.09600), whose
hotpot_evaluate_v1.py adds that yes, no and noanswer match completely or not at all.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import re2

TAGGED: Any = re2.compile(r"(?is)<answer>(.*?)</answer>")
WORDS: Any = re2.compile(r"[\pL\pN_]+|[^\pL\pN_]+")
ARTICLES = {"a": " ", "an": " ", "the": " "}
MAX_CHARACTERS = 100_000
"""Length of an answer, which should be a few words."""
PUNCTUATION = str.maketrans("", "", string.punctuation)
WHOLE = ("yes", "no", "noanswer")


def given_answer(text: str) -> str:
    """Return the answer in a response: its last <answer>, or all of it if there is none; '' if it is too long."""
    tagged = TAGGED.findall(text)
    answer = str(tagged[-1]) if tagged else text
    return answer if len(answer) <= MAX_CHARACTERS else ""


def normalised(text: str) -> str:
    """Convert to lower case, without punctuation and articles, with single spaces."""
    words = WORDS.findall(text.lower().translate(PUNCTUATION))
    return " ".join("".join(ARTICLES.get(word, word) for word in words).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1 if the answer is one of the golds, else 0."""
    return float(normalised(answer) in {normalised(gold) for gold in golds})


def f1(answer: str, golds: Sequence[str]) -> float:
    """Return the best F1 of words against any of the golds."""
    return max((_f1(normalised(answer), normalised(gold)) for gold in golds), default=0.0)


def _f1(answer: str, gold: str) -> float:
    if answer != gold and (answer in WHOLE or gold in WHOLE):
        return 0.0
    ours, theirs = answer.split(), gold.split()
    shared = sum((Counter(ours) & Counter(theirs)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(ours), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)
