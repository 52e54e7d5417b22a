"""How far the words of two sets of texts are apart."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.simulator.style import divergence

WORDS = st.lists(st.text(alphabet="abcd ", min_size=1), min_size=1, max_size=5).filter(
    lambda texts: any("".join(texts).split())
)


@settings(max_examples=50)
@given(WORDS, WORDS)
def test_divergence_is_a_symmetric_number_of_bits(left, right):
    value = divergence(left, right)
    assert -1e-9 <= value <= 1 + 1e-9
    assert value == pytest.approx(divergence(right, left))
    assert divergence(left, [*left, *left]) == pytest.approx(0.0, abs=1e-9)


def test_divergence_of_nothing_in_common_and_of_nothing():
    assert divergence(["a b"], ["c"]) == pytest.approx(1.0)
    assert math.isnan(divergence([], ["c"]))
    assert math.isnan(divergence(["c"], ["..."]))
