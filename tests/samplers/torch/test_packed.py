"""Which beginnings of contexts are common."""

from __future__ import annotations

from evoseek.samplers.torch.packed import SHARED, common_length, find_longest

PROMPT = list(range(SHARED))


def test_common_lengths():
    assert common_length([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_length([1, 2], [1, 2, 4, 5]) == 2
    assert common_length([3, 2], [1, 2]) == 0
    assert common_length([], [1]) == 0


def whole(*others: list[int]) -> list[tuple[list[int], int]]:
    return [(other, len(other)) for other in others]


def test_the_first_of_the_longest_is_found():
    """Of 16 + 4 tokens, the others have 16, 18 and 18 in common with them."""
    others = whole([*PROMPT, 9], [*PROMPT, 1, 2], [*PROMPT, 1, 2, 9, 9])
    assert find_longest([*PROMPT, 1, 2, 3, 4], others) == (SHARED + 2, 1)


def test_the_last_token_is_always_computed_and_short_beginnings_do_not_count():
    assert find_longest([*PROMPT, 1], whole([*PROMPT, 1, 2])) == (SHARED, 0)
    assert find_longest(PROMPT, whole([*PROMPT, 1, 2])) == (0, None)
    assert find_longest([*PROMPT, 1], whole(PROMPT[:-1])) == (0, None)
    assert find_longest([*PROMPT, 1], []) == (0, None)


def test_of_another_context_only_what_counts_is_taken():
    """The other one holds 17 of its 18 tokens."""
    assert find_longest([*PROMPT, 1, 2, 3], [([*PROMPT, 1, 2], SHARED + 1)]) == (SHARED + 1, 0)


def test_what_is_known_already_is_not_found_again():
    """Of 36 tokens 5 are known. The others have 5 + 15, too few, and 5 + 16 in common with them."""
    ids = list(range(36))
    others = whole([*ids[:20], 99], [*ids[:21], 99])
    assert find_longest(ids, others[:1], known=5) == (5, None)
    assert find_longest(ids, others, known=5) == (21, 1)
    assert find_longest(ids, others, known=6) == (6, None)
