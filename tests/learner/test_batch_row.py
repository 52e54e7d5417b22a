"""The prefix tree of a micro-batch, with numbers worked out by hand."""

import sys

import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.learner.batch import Branch, PackedRow, lay_out, tree_order

CPU = torch.device("cpu")
PROMPT = tuple(range(100, 120))  # 20 tokens


def test_a_row_by_hand() -> None:
    """The third sample shares two tokens with the second, the fourth three with the third, one of them its own; the
    fifth is the fourth's beginning, and the last is empty."""
    samples = (7, 8), (1, 2, 3, 4), (1, 2, 5, 6), (1, 2, 5, 9), (1, 2, 5), ()
    row = lay_out(samples, CPU, shortest=1)
    assert row.token_ids.tolist() == [7, 8, 1, 2, 3, 4, 5, 6, 9]
    assert row.positions.tolist() == [0, 1, 0, 1, 2, 3, 2, 3, 3]
    assert row.index.tolist() == [[0, 1, 0, 0], [2, 3, 4, 5], [2, 3, 6, 7], [2, 3, 6, 8], [2, 3, 6, 0], [0, 0, 0, 0]]
    assert row.spans == (2, 4, 2, 1)
    assert row.pieces == (2, 2, 2, 1, 1, 1)
    assert row.seen == ((0,), (1, 2), (1, 3, 4), (1, 3, 5))
    assert row.longest == 4


def test_equal_samples_cost_the_tokens_of_one_and_a_beginning_of_another_nothing() -> None:
    row = lay_out([PROMPT] * 8, CPU)
    assert (row.spans, row.pieces, row.seen) == ((20,), (20,), ((0,),))
    assert row.index.tolist() == [list(range(20))] * 8
    assert lay_out([(*PROMPT, 1, 2), PROMPT], CPU).spans == (22,)
    assert lay_out([PROMPT, (*PROMPT, 1, 2)], CPU).spans == (20, 2)


def test_short_stretches_are_computed_again() -> None:
    """After 20 tokens that all have, the last two have 15 more in common, or 16; at 15 the cut at 20 serves."""
    for common, spans in ((15, (21, 16, 16)), (16, (21, 17, 1))):
        further = range(200, 200 + common)
        row = lay_out([(*PROMPT, 1), (*PROMPT, *further, 2), (*PROMPT, *further, 3)], CPU)
        assert row.spans == spans
    assert lay_out([PROMPT[:15], PROMPT[:15]], CPU).spans == (15, 15)
    assert lay_out([PROMPT, PROMPT], CPU, shortest=sys.maxsize).spans == (20, 20)


def test_what_a_sample_shares_by_hand() -> None:
    """The third has 5 letters in common with the second, one behind the cut at 4; the next ones are beginnings."""
    branch, words = Branch(shortest=2), ("abcdef", "abcdxy", "abcdxz", "abc", "a", "abx")
    assert [branch.grow(tuple(map(ord, word))) for word in words] == [0, 4, 4, 3, 0, 0]


def test_the_order_is_the_trees_longest_branch_first() -> None:
    """Of the two branches after (1, 2) the one with the longest sample comes first; equal lengths keep their order."""
    samples = [(5, 6), (1, 2, 3), (9, 9), (1, 2, 4, 4, 4), (1, 2, 3), (1, 2, 4)]
    assert tree_order(samples) == [3, 5, 1, 4, 0, 2]
    assert tree_order([]) == []


samples = st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=12).map(tuple), min_size=1, max_size=12)


@given(samples, st.integers(1, 4))
def test_every_sample_is_in_its_row_and_sees_itself_alone(given_ids: list[tuple[int, ...]], shortest: int) -> None:
    row = lay_out([*given_ids, ()], CPU, shortest)
    for ids, places in zip(given_ids, row.index.tolist(), strict=False):
        assert tuple(row.token_ids[places[: len(ids)]].tolist()) == ids
        assert row.positions[places[: len(ids)]].tolist() == list(range(len(ids)))
    assert sum(row.spans) == sum(row.pieces) == len(row.token_ids)
    assert seen_places(row) <= {tuple(row.index[n, : len(ids)].tolist()) for n, ids in enumerate(given_ids)}


def seen_places(row: PackedRow) -> set[tuple[int, ...]]:
    """The places in the row that the last token of each span sees, which are the span's own at last."""
    starts = [sum(row.pieces[:n]) for n in range(len(row.pieces))]
    found: set[tuple[int, ...]] = set()
    end = 0
    for size, seen in zip(row.spans, row.seen, strict=True):
        places = tuple(place for n in seen for place in range(starts[n], starts[n] + row.pieces[n]))
        end += size
        assert places[len(places) - size :] == tuple(range(end - size, end))
        found.add(places)
    return found


@given(samples)
def test_in_the_trees_order_every_common_beginning_is_laid_out_once(given_ids: list[tuple[int, ...]]) -> None:
    order = tree_order(given_ids)
    assert sorted(order) == list(range(len(given_ids)))
    row = lay_out([given_ids[number] for number in order], CPU, shortest=1)
    assert len(row.token_ids) == len({ids[: n + 1] for ids in given_ids for n in range(len(ids))})
