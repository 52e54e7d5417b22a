"""Drawing tokens, with numbers worked out by hand."""

from __future__ import annotations

import math
from math import floor
from statistics import mean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evoseek.samplers.torch.draw import draw_tokens, turn_uniforms


def draw(probabilities: list[float], uniform: float, temperature: float = 1.0) -> tuple[int, float]:
    logits = torch.tensor([probabilities]).log()
    ids, logprobs = draw_tokens(logits, torch.tensor([temperature]), torch.tensor([uniform]))
    return int(ids), float(logprobs)


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 1), (0.249, 1), (0.251, 2), (0.749, 2), (0.751, 4), (1 - 2**-24, 4)]
)
def test_the_inverse_of_the_cumulative_distribution(uniform: float, token: int):
    """Probabilities 0, 1/4, 1/2, 0, 1/4, 0: the bounds are at 1/4 and 3/4, and no token of probability 0 is drawn."""
    probabilities = [0.0, 0.25, 0.5, 0.0, 0.25, 0.0]
    assert draw(probabilities, uniform) == (token, pytest.approx(math.log(probabilities[token]), abs=1e-6))


def test_temperature():
    """At T = 1/2 probabilities 1/4, 3/4 become 1/10, 9/10."""
    assert draw([0.25, 0.75], 0.09, 0.5) == (0, pytest.approx(math.log(0.1), abs=1e-6))
    assert draw([0.25, 0.75], 0.11, 0.5) == (1, pytest.approx(math.log(0.9), abs=1e-6))


def test_temperature_zero_takes_the_best_with_its_logprob_at_temperature_one():
    assert draw([0.2, 0.5, 0.3], 0.99, 0.0) == (1, pytest.approx(math.log(0.5), abs=1e-6))


def test_rows_have_their_own_temperature_and_uniform():
    logits = torch.tensor([[0.25, 0.75]]).log().repeat(3, 1)
    ids, logprobs = draw_tokens(logits, torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0.0, 0.2, 0.2]))
    assert ids.tolist() == [1, 0, 1]
    assert logprobs.tolist() == pytest.approx([math.log(0.75), math.log(0.25), math.log(0.9)], abs=1e-6)


def test_rare_tokens_of_a_large_vocabulary_are_drawn_as_often_as_they_should():
    """0.999 on the first token, 1e-8 on each of 100,000 others: a sum in float32 could stay at 0.999."""
    logits = torch.full((1, 100_001), math.log(1e-8))
    logits[0, 0] = math.log(0.999)
    ids, _ = draw_tokens(logits, torch.ones(1), torch.tensor([0.9995]))
    assert int(ids) == pytest.approx(50_000, abs=50)


@pytest.mark.parametrize(("vocabulary", "likely"), [(64, 0), (200, 70)])
def test_every_token_of_a_tail_of_1e_9_is_drawn_where_its_probability_lies(vocabulary: int, likely: int):
    """One token has all but 1e-9 for each of the others: they are beside it in its block, and in other blocks."""
    logits = torch.full((1, vocabulary), math.log(1e-9))
    logits[0, likely] = math.log(1 - 1e-9 * (vocabulary - 1))
    probabilities = logits[0].log_softmax(-1).exp().double()
    middles = (probabilities.cumsum(0) - probabilities / 2) / probabilities.sum()
    ids, _ = draw_tokens(logits.expand(vocabulary, -1), torch.ones(vocabulary), middles)
    assert ids.tolist() == list(range(vocabulary))


@pytest.mark.parametrize("vocabulary", [64, 65, 130])
def test_every_token_of_several_blocks_has_its_share(vocabulary: int):
    """Equal probabilities 1/V: uniform (i + .5) / V points at token i, and uniform 0 at the first one that is possible.
    Without the first 64 tokens (a whole block), uniform u points at 64 + u (V - 64)."""
    logits = torch.zeros(vocabulary, vocabulary)
    middles = (torch.arange(vocabulary) + 0.5) / vocabulary
    ids, logprobs = draw_tokens(logits, torch.ones(vocabulary), middles)
    assert ids.tolist() == list(range(vocabulary))
    assert logprobs.tolist() == pytest.approx([-math.log(vocabulary)] * vocabulary, abs=1e-6)
    if left := vocabulary - 64:
        logits[:, :64] = -math.inf
        ids, _ = draw_tokens(logits[:left], torch.ones(left), (torch.arange(left) + 0.5) / left)
        assert ids.tolist() == list(range(64, vocabulary))


def test_no_token_past_the_last_possible_one_is_drawn():
    """0.1 + 0.2 + 0.7 and 63 impossible tokens, 2 of them in the next block: the greatest uniform takes the third."""
    probabilities = [0.1, 0.2, 0.7] + [0.0] * 63
    assert draw(probabilities, 1 - 2**-24)[0] == 2


@given(st.lists(st.floats(-20, 20), min_size=2, max_size=30), st.floats(0, 1 - 2**-24, width=32), st.floats(0.1, 3))
def test_the_draw_is_a_token_and_its_logprob_that_of_the_softmax(values: list[float], uniform: float, heat: float):
    logits = torch.tensor([values])
    ids, logprobs = draw_tokens(logits, torch.tensor([heat]), torch.tensor([uniform]))
    table = (logits.double() / heat).log_softmax(-1)
    assert float(logprobs) == pytest.approx(float(table[0, int(ids)]), abs=1e-4)
    below = table.exp()[0, : int(ids)].sum()
    assert float(below) <= uniform + 1e-5
    assert float(below + table.exp()[0, int(ids)]) >= uniform - 1e-5


# Streams are functions of what they are for


def test_the_values_are_pinned():
    """A run that is resumed with a later version goes on with the same numbers."""
    values = turn_uniforms(1, "q1/0", 2, 3)
    assert values == [0.7756553339758748, 0.16491838420678806, 0.8047068814724614]
    leading = [floor(value * 2**24) / 2**24 for value in values]
    assert leading == [0.7756553292274475, 0.16491836309432983, 0.804706871509552]  # of versions with 24 bits


def test_the_values_have_the_53_bits_of_float64():
    """Multiples of 2^-53, of which every bit is set in half of them."""
    numbers = [int(value * 2**53) for value in turn_uniforms(0, "a", 0, 10_000)]
    assert [number / 2**53 for number in numbers] == turn_uniforms(0, "a", 0, 10_000)
    for bit in range(53):
        assert abs(mean(number >> bit & 1 for number in numbers) - 0.5) < 0.03


def test_a_longer_draw_begins_like_a_shorter_one():
    assert turn_uniforms(0, "a", 0, 50)[:7] == turn_uniforms(0, "a", 0, 7)


def test_seed_trajectory_and_turn_each_matter_and_do_not_run_together():
    names = [(0, "a", 0), (1, "a", 0), (0, "b", 0), (0, "a", 1), (0, "a1", 1), (0, "a", 11), (10, "a", 1), (1, "0a", 1)]
    assert len({tuple(turn_uniforms(*name, 4)) for name in names}) == len(names)


def test_values_are_uniform_below_one():
    values = [value for number in range(200) for value in turn_uniforms(0, f"t{number}", 0, 50)]
    assert all(0 <= value < 1 for value in values)
    assert abs(mean(values) - 0.5) < 0.015
    assert abs(mean(value < 0.1 for value in values) - 0.1) < 0.015
    firsts = [turn_uniforms(0, f"t{number}", 0, 1)[0] for number in range(2000)]
    assert abs(mean(firsts) - 0.5) < 0.03


def test_a_row_that_is_given_its_token_draws_none_and_has_the_tokens_own_logprob():
    logits = torch.tensor([[0.25, 0.75]]).log().repeat(2, 1)
    ids, logprobs = draw_tokens(logits, torch.ones(2), torch.tensor([0.9, 0.9]), [0, None])
    assert ids.tolist() == [0, 1]
    assert logprobs.tolist() == pytest.approx([math.log(0.25), math.log(0.75)], abs=1e-6)
