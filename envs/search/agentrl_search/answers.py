"""Whether an answer is the gold one: exact match and F1 of words, after SQuAD's normalisation.

Sources: Rajpurkar et al. 2016 (arXiv:1606.05250), its evaluate-v1.1.py; Yang et al. 2018 (arXiv:1809.09600), whose
hotpot_evaluate_v1.py adds that yes, no and noanswer match as a whole or not at all.
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
MOST_CHARACTERS = 100_000
"""Of an answer; a longer one is none of a few words."""
PUNCTUATION = str.maketrans("", "", string.punctuation)
WHOLE = ("yes", "no", "noanswer")


def given_answer(text: str) -> str:
    """What a response answers: its last <answer>, or all of it where it marks none; '' for a text without end."""
    tagged = TAGGED.findall(text)
    answer = str(tagged[-1]) if tagged else text
    return answer if len(answer) <= MOST_CHARACTERS else ""


def normalised(text: str) -> str:
    """Lower case, without punctuation and articles, one space between words."""
    words = WORDS.findall(text.lower().translate(PUNCTUATION))
    return " ".join("".join(ARTICLES.get(word, word) for word in words).split())


def exact_match(answer: str, golds: Sequence[str]) -> float:
    """1 where the answer is one of the golds."""
    return float(normalised(answer) in {normalised(gold) for gold in golds})


def f1(answer: str, golds: Sequence[str]) -> float:
    """The best F1 of the words shared with a gold."""
    return max((_f1(normalised(answer), normalised(gold)) for gold in golds), default=0.0)


def _f1(answer: str, gold: str) -> float:
    if answer != gold and (answer in WHOLE or gold in WHOLE):
        return 0.0
    given, wanted = answer.split(), gold.split()
    shared = sum((Counter(given) & Counter(wanted)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(given), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)
