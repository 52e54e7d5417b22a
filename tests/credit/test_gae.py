import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.credit.gae import gae

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "gae.json").read_text())["cases"]
steps = st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=1, max_size=10)


@pytest.mark.parametrize("case", CASES)
def test_advantages_and_returns_equal_the_reference(case: dict) -> None:
    advantages, returns = gae(case["rewards"], case["values"], gamma=case["gamma"], lam=case["lam"])
    assert advantages == pytest.approx(case["advantages"], abs=1e-12)
    assert returns == pytest.approx(case["returns"], abs=1e-12)


def test_by_hand() -> None:
    """delta = 1 - 0.5 = 0.5 at the end; 0.5 * 0.5 - 0.25 = 0 before, plus 0.5 * 0.5 * 0.5 of what follows."""
    assert gae([0.0, 1.0], [0.25, 0.5], gamma=0.5, lam=0.5) == ([0.125, 0.5], [0.375, 1.0])


@given(steps)
def test_with_lambda_one_the_returns_are_the_sums_of_what_follows(pairs: list) -> None:
    rewards, values = zip(*pairs, strict=True)
    _, returns = gae(rewards, values, gamma=1.0, lam=1.0)
    assert returns == pytest.approx([sum(rewards[t:]) for t in range(len(rewards))], abs=1e-9)


@given(steps)
def test_with_lambda_zero_an_advantage_looks_one_token_ahead(pairs: list) -> None:
    rewards, values = zip(*pairs, strict=True)
    advantages, _ = gae(rewards, values, gamma=0.9, lam=0.0)
    following = [*values[1:], 0.0]
    assert advantages == pytest.approx([r + 0.9 * n - v for r, v, n in zip(rewards, values, following, strict=True)])


def test_a_perfect_critic_leaves_no_advantage() -> None:
    assert gae([0.0, 0.0, 1.0], [1.0, 1.0, 1.0], gamma=1.0, lam=0.95)[0] == [0.0, 0.0, 0.0]


def test_edges() -> None:
    assert gae([], [], gamma=1.0, lam=1.0) == ([], [])
    with pytest.raises(ValueError, match="argument"):
        gae([1.0], [0.0, 0.0], gamma=1.0, lam=1.0)
