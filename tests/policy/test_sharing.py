"""Which beginnings of contexts are common."""

from __future__ import annotations

from evoseek.policy.sharing import SHARED, common_length, find_longest

PROMPT = list(range(SHARED))


def test_common_lengths():
    assert common_length([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_length([1, 2], [1, 2, 4, 5]) == 2
    assert common_length([3, 2], [1, 2]) == 0
    assert common_length([], [1]) == 0


def test_the_first_of_the_longest_is_found():
    """Of 16 + 4 tokens, the others have 16, 18 and 18 in common with them."""
    others = [[*PROMPT, 9], [*PROMPT, 1, 2], [*PROMPT, 1, 2, 9, 9]]
    assert find_longest([*PROMPT, 1, 2, 3, 4], others) == (SHARED + 2, 1)


def test_the_last_token_is_always_computed_and_short_beginnings_do_not_count():
    assert find_longest([*PROMPT, 1], [[*PROMPT, 1, 2]]) == (SHARED, 0)
    assert find_longest(PROMPT, [[*PROMPT, 1, 2]]) == (0, None)
    assert find_longest([*PROMPT, 1], [PROMPT[:-1]]) == (0, None)
    assert find_longest([*PROMPT, 1], []) == (0, None)
