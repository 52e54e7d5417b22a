"""The style of a simulated search engine, compared with the real one: the length of its documents, and their words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.spatial.distance import jensenshannon

from evoseek.eval.statistics import Interval, bootstrap_mean_interval

REAL = "real"

_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Style:
    """Documents in a reply, their words with a 95 % interval of the mean, and how far the distribution of words is from
    the real engine's: Jensen-Shannon divergence in bits, 0 for the same and 1 for no word in common.

    It is measured against what the real engine found for other queries, and that of the real engine likewise, so both
    have the same number of queries and no subject in common: a good simulator has about the real engine's own.
    """

    documents: float
    words: float
    interval: Interval
    divergence: float


def styles(real: Sequence[Sequence[str]], written: Mapping[str, Sequence[Sequence[str] | None]]) -> Mapping[str, Style]:
    """That of the real engine's documents, by the name `real`, and those of replies (None: unreadable) to the same
    queries. The divergences are of the first half of the queries, against the real documents of the second."""
    half = len(real) // 2
    others = [text for texts in real[half:] for text in texts]
    return {name: _style(found, half, others) for name, found in {REAL: real, **written}.items()}


def divergence(left: Iterable[str], right: Iterable[str]) -> float:
    """Jensen-Shannon divergence of the words of two sets of texts, in bits; nan if one has no words."""
    counts = [Counter(word for text in texts for word in _words(text)) for texts in (left, right)]
    if not all(counts):
        return float("nan")
    vocabulary = sorted(counts[0] | counts[1])
    distributions = [np.array([count[word] for word in vocabulary], dtype=float) for count in counts]
    return float(cast("float", jensenshannon(*distributions, base=2))) ** 2


def _style(found: Sequence[Sequence[str] | None], half: int, others: Sequence[str]) -> Style:
    came = [texts for texts in found if texts]
    if not came:
        return Style(float("nan"), float("nan"), Interval(0.0, float("inf")), float("nan"))
    words = [sum(len(_words(text)) for text in texts) / len(texts) for texts in came]
    return Style(
        documents=sum(map(len, came)) / len(came),
        words=sum(words) / len(words),
        interval=bootstrap_mean_interval(words),
        divergence=divergence([text for texts in found[:half] for text in texts or ()], others),
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
