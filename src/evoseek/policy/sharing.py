"""Beginnings that trajectories have in common: computed for one of them, and copied to the others.

The prompt of a group, and what its trajectories find by the same searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHARED = 16
"""Tokens from which a common beginning is copied, and in training computed once (`bench/learner.py --only prefix`)."""


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two contexts, of the same type of sequence, have in common at their beginnings."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)


def find_longest(
    ids: Sequence[int], others: Iterable[tuple[Sequence[int], int]], known: int = 0
) -> tuple[int, int | None]:
    """The longest beginning of `ids` that another context, of which so many tokens count, has too, and the number of
    the first that has it.

    Beginnings with less than `SHARED` tokens behind the first `known` do not count: then (known, None). The last token
    is left out, as it is always computed.
    """
    best, found = known, None
    first = slice(known, known + SHARED)
    for number, (other, length) in enumerate(others):
        if length > best and other[first] == ids[first]:
            common = common_length(ids[:-1], other[:length])
            if common > max(best, known + SHARED - 1):
                best, found = common, number
    return best, found
