"""What a credit of one's own returns is checked before anything is trained on it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from evoseek.credit import advantages_of, estimates_of, gae
from evoseek.errors import ToolError, TrainingError
from evoseek.types import Question, Segment, StopReason, Trajectory

REWARDS = [1.0, 0.0, 0.5]


class Mine:
    """A credit that returns this, or raises it."""

    def __init__(self, given):
        self.given = given

    def __call__(self, rewards, groups):
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, None, 0.25], [1.0, None, 0.25]),
        ((0.5, -0.5, 0.0), [0.5, -0.5, 0.0]),
        (np.array([0.5, -0.5, 0.0], dtype=np.float32), [0.5, -0.5, 0.0]),
    ],
)
def test_numbers_for_the_rewards_whatever_holds_them(given, expected):
    found = advantages_of(Mine(given), REWARDS, "aab")
    assert found == expected
    assert all(type(value) in (float, type(None)) for value in found)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([1.0, 0.0], "gave 2 numbers. Expected 3 advantages"),
        ([1.0] * 4, "gave 4 numbers. Expected 3 advantages"),
        (0.5, r"gave 0.5 \(float\). Expected 3"),
        (None, "gave None"),
        (np.array(0.5), r"gave array\(0.5\) \(ndarray\). Expected 3"),
        ("0.5", "gave '0.5'"),
        ({0: 1.0, 1: 0.0, 2: 0.5}, "gave {0: 1.0"),
        (["0.5", 0.0, 0.0], r"gave '0.5' \(str\) among the advantages"),
        ([[1.0], [0.0], [0.5]], r"gave \[1.0\] \(list\) among"),
        ([1.0, 0.0, 1j], "gave 1j .* among"),
        ([1.0, math.nan, 0.0], r"gave nan \(float\) among the advantages.*or None"),
        ([1.0, math.inf, 0.0], "gave inf"),
        (KeyError("x"), "failed: KeyError: 'x'"),
        (SystemExit(3), "failed: SystemExit: 3"),
    ],
)
def test_trap_anything_else_is_refused_and_names_the_credit(given, words):
    with pytest.raises(TrainingError, match=f"The credit Mine {words}.*") as raised:
        advantages_of(Mine(given), REWARDS, "aab")
    assert "Nothing was trained on" in str(raised.value)


TURNS = (Segment("prompt", (1,)), Segment("action", (2,), (0.0,)), Segment("action", (3,), (0.0,)))


class TestTrajectories:
    """A credit with an argument `trajectories` gets them, and may give a list for a rollout: one number a turn."""

    ONE = Trajectory("t0", Question("q", "who?", ()), "solver", TURNS, (), (), StopReason.ANSWERED)
    TWO = (ONE, replace(ONE, id="t1"))

    def found(self, given):
        def own(rewards, groups, trajectories):
            assert trajectories == self.TWO
            return given

        return advantages_of(own, [1.0, 0.0], "aa", self.TWO)

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ([1, None], [1.0, None]),
            (np.array([0.5, -0.5]), [0.5, -0.5]),
            ([[0.5, 1], -0.5], [[0.5, 1.0], -0.5]),
            ([np.array([0.5, 1.0]), None], [[0.5, 1.0], None]),
        ],
    )
    def test_numbers_or_one_for_each_turn(self, given, expected):
        assert self.found(given) == expected

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ([[0.5], 0.0], "gave 1 numbers. Expected 2 advantages for the turns of 't0'"),
            ([0.0, [0.5, math.nan]], r"gave nan \(float\) among the advantages for the turns of 't1'. Expected finite"),
            ([0.0, [0.5, None]], "gave None .* among the advantages for the turns of 't1'"),
            ([0.0, "0.5"], r"gave '0.5' \(str\) among the advantages for the rewards"),
            ([[0.5, 0.5]], "gave 1 numbers. Expected 2 advantages for the rewards"),
        ],
    )
    def test_trap_anything_else_is_refused_and_names_the_trajectory(self, given, words):
        with pytest.raises(TrainingError, match=words):
            self.found(given)

    def test_a_credit_without_the_argument_is_called_as_before(self):
        assert advantages_of(Mine([0.5, 0.0]), [1.0, 0.0], "aa", self.TWO) == [0.5, 0.0]
        with pytest.raises(TrainingError, match=r"gave \[0.5, 0.5\] \(list\) among"):
            advantages_of(Mine([[0.5, 0.5], 0.0]), [1.0, 0.0], "aa", self.TWO)


def test_an_error_of_evoseek_keeps_its_own_words():
    with pytest.raises(ToolError, match="down"):
        advantages_of(Mine(ToolError("down")), REWARDS, "aab")


def test_with_a_critic_there_are_advantages_and_returns():
    pair = gae([0.0, 1.0], [0.5, 0.5], gamma=1.0, lam=1.0)
    assert estimates_of(Mine(pair), [0.0, 1.0], [0.5, 0.5]) == pair
    for given, words in (
        ([0.5, 0.5, 0.5], "Expected a pair"),
        (pair[0], "Expected 2 advantages"),
        ((pair[0], pair[1][:1]), "Expected 2 returns"),
        ((pair[0], [None, 0.0]), "None .* among the returns"),
    ):
        with pytest.raises(TrainingError, match=words):
            estimates_of(Mine(given), [0.0, 1.0], [0.5, 0.5])
