"""Beginnings that trajectories have in common: computed for one of them, and copied to the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SHARED = 16  # tokens from which a common beginning is copied


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two contexts, of the same type of sequence, have in common at their beginnings."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(place for place, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)


def find_longest(ids: Sequence[int], others: Iterable[Sequence[int]]) -> tuple[int, int | None]:
    """The longest beginning of `ids` in another context, and the number of the first that has it.

    Beginnings shorter than `SHARED` do not count: then (0, None). The last token is left out, as it is always computed.
    """
    best, found = 0, None
    for number, other in enumerate(others):
        if other[:SHARED] == ids[:SHARED] and (length := common_length(ids[:-1], other)) > max(best, SHARED - 1):
            best, found = length, number
    return best, found
