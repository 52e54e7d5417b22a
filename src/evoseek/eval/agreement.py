"""How well a judge agrees with people on labelled answers, with intervals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evoseek.eval.evaluate import Score
from evoseek.eval.statistics import wilson_interval

_BOTH = (True, False)


@dataclass(frozen=True, slots=True)
class Agreement:
    """`counts[label, verdict]` is the number of answers with this label and verdict (None: the judge gave no verdict).

    Answers without a verdict count in every n and as invalid, and are excluded from all means. A mean over nothing is
    nan.
    """

    counts: Mapping[tuple[bool, bool | None], int]

    @classmethod
    def of(cls, pairs: Iterable[tuple[bool, bool | None]]) -> Agreement:
        """From each answer's label and verdict."""
        return cls(Counter(pairs))

    @property
    def agreement(self) -> Score:
        """Share of verdicts that are the label."""
        return self._share([(True, True), (False, False)], _BOTH)

    @property
    def false_positives(self) -> Score:
        """Share judged correct among answers labelled incorrect: wrong answers that a policy would be rewarded for."""
        return self._share([(False, True)], (False,))

    @property
    def false_negatives(self) -> Score:
        """Share judged incorrect among answers labelled correct."""
        return self._share([(True, False)], (True,))

    @property
    def kappa(self) -> float:
        """Cohen's kappa (1960): agreement beyond chance, 1 at best, 0 by chance, over the answers with a verdict.

        (p_o - p_e) / (1 - p_e), p_o the agreement and p_e what it would be if labels and verdicts kept their shares but
        knew nothing of each other; nan if all labels and all verdicts are the same.
        """
        n = self._count(_BOTH, _BOTH)
        by_chance = sum(self._count((value,), _BOTH) * self._count(_BOTH, (value,)) for value in _BOTH)
        agreed = sum(self._count((value,), (value,)) for value in _BOTH)
        return (n * agreed - by_chance) / (n * n - by_chance) if n * n > by_chance else math.nan

    def _share(self, cells: Iterable[tuple[bool, bool]], labels: tuple[bool, ...]) -> Score:
        hits, judged = sum(self.counts.get(cell, 0) for cell in cells), self._count(labels, _BOTH)
        unread = self._count(labels, (None,))
        mean = hits / judged if judged else math.nan
        return Score(mean, wilson_interval(hits, judged), judged + unread, unread)

    def _count(self, labels: tuple[bool, ...], verdicts: tuple[bool | None, ...]) -> int:
        return sum(self.counts.get((label, verdict), 0) for label in labels for verdict in verdicts)
