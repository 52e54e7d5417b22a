import json
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import TrainingError
from evoseek.selfplay.proposer_reward import (
    DIFFICULTIES,
    ProposerReward,
    between,
    difficulty,
    failure,
    parabolic,
    uncertainty,
)
from evoseek.types import (
    Action,
    Invalid,
    Outcome,
    Passage,
    ProposerTask,
    Question,
    Scored,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
)

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "difficulty.json").read_text())["cases"]
RIGHT, WRONG = Scored(1.0, {"exact_match": 1.0}), Scored(0.0, {"exact_match": 0.0})
DOWN = Invalid(StopReason.TOOL_FAILED, "the engine is down")
LATE = Invalid(StopReason.DEADLINE, "too slow")

counts = st.integers(0, 12).flatmap(lambda attempts: st.tuples(st.integers(0, attempts), st.just(attempts)))


@pytest.mark.parametrize("case", CASES)
def test_the_reward_equals_the_reference(case):
    assert difficulty(case["correct"], case["n"]) == pytest.approx(case["reward"], abs=1e-12)


def test_without_two_attempts_nothing_is_between():
    assert [difficulty(0, 0), difficulty(0, 1), difficulty(1, 1)] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("function", "expected"),  # for 0, 1, 2, 3, 4 of 4
    [
        (difficulty, [0, 3 / 3, 2 / 3, 1 / 3, 0]),
        (parabolic, [0, 3 / 4, 1, 3 / 4, 0]),  # 4 * 1/4 * 3/4
        (uncertainty, [0, 1 / 2, 1, 1 / 2, 0]),  # 1 - 2 * 1/4
        (between, [0, 1, 1, 1, 0]),
        (failure, [1, 3 / 4, 1 / 2, 1 / 4, 0]),
    ],
)
def test_difficulties_by_hand(function, expected):
    assert [function(correct, 4) for correct in range(5)] == pytest.approx(expected)
    assert function(0, 0) == 0.0


@given(counts)
def test_all_difficulties_are_in_range_and_all_but_failure_pay_nothing_for_what_is_always_or_never_right(count):
    correct, attempts = count
    for name, function in DIFFICULTIES.items():
        assert 0.0 <= function(correct, attempts) <= 1.0
        if correct in (0, attempts) and name != "failure":
            assert function(correct, attempts) == 0.0


def proposal(*, hops: int = 2, searches: int = 1, from_passage: bool = True) -> Trajectory:
    """A proposal with reasoning in both turns and an answer of the source: f = (1 + 1 + tool + 1) / 4."""
    call = ToolCall("search", {"query": "Kalo"})
    task = ProposerTask(hops, Passage("p", "p", "Kalo", "Kalo's mayor is Meri.") if from_passage else None)
    thought = Action("<think> yes </think>")
    return Trajectory(
        id="t/0",
        question=Question("t", "Kalo\nKalo's mayor is Meri.", (), task=task),
        role="proposer",
        segments=(),
        actions=(*(thought,) * searches, Action(thought.text, answer="Meri", question="who is mayor there ?")),
        tool_results=(ToolResult(call, ""),) * searches,
        stop_reason=StopReason.ANSWERED,
        answer="Meri",
    )


ATTEMPT = Trajectory("q/0", Question("q", "who ?", ("Meri",)), "solver", (), (), (), StopReason.ANSWERED)
BOUNDS = [  # failed attempts that were made again, that were not, of five; the bound; whether there is a reward
    (1, 0, None, True),  # one of six
    (0, 1, None, True),  # one of five
    (2, 0, None, False),  # two of seven
    (1, 1, None, False),  # two of six
    (2, 0, 0.3, True),
    (1, 0, 0.0, False),
    (9, 4, 1.0, True),
]


def solvers(*outcomes: Outcome) -> TrajectoryGroup:
    return TrajectoryGroup("q", (ATTEMPT,) * len(outcomes), outcomes)


def test_the_default_is_dr_zeros_reward_from_0_to_3_halves():
    outcome = ProposerReward()(proposal(), rejected=None, solvers=solvers(RIGHT, WRONG, WRONG, WRONG, WRONG))
    assert outcome == Scored(
        1.5, {"difficulty": 1.0, "format": 1.0, "solver/mean": 0.2, "solver/valid": 5.0, "solver/invalid": 0.0}
    )
    # linear (4 - 3) / 3; tool (1 + 1) / 4, f = 3.5 / 4
    outcome = ProposerReward()(proposal(hops=4), rejected=None, solvers=solvers(RIGHT, RIGHT, WRONG, RIGHT))
    assert outcome.reward == pytest.approx(1 / 3 + 0.5 * 3.5 / 4)
    assert outcome.parts["difficulty"] == pytest.approx(1 / 3)
    assert outcome.parts["format"] == pytest.approx(3.5 / 4)


@pytest.mark.parametrize(
    ("name", "expected"), [("linear", 2 / 3), ("parabolic", 1), ("uncertainty", 1), ("between", 1), ("failure", 0.5)]
)
def test_the_difficulty_and_the_weight_are_settable(name, expected):
    group = solvers(RIGHT, WRONG, RIGHT, WRONG)
    assert ProposerReward(name, format_weight=0.0)(proposal(), solvers=group).reward == pytest.approx(expected)
    assert ProposerReward(name, format_weight=2.0)(proposal(), solvers=group).reward == pytest.approx(expected + 2)


def test_without_weight_or_source_passage_there_is_no_format():
    group = solvers(RIGHT, WRONG)
    assert "format" not in ProposerReward(format_weight=0.0)(proposal(), solvers=group).parts
    outcome = ProposerReward(format_weight=0.5)(proposal(from_passage=False), solvers=group)
    assert outcome.reward == 1.0
    assert "format" not in outcome.parts


def test_a_question_that_nobody_has_tried_is_worth_its_format():
    assert ProposerReward()(proposal(hops=1)) == Scored(0.5, {"format": 1.0})
    assert ProposerReward(format_weight=0.0)(proposal()) == Scored(0.0, {})


@pytest.mark.parametrize("reward", [0.0, -0.1])
def test_a_rejected_proposal_gets_the_rejected_reward_and_no_format(reward):
    outcome = ProposerReward(rejected_reward=reward)(proposal(), rejected="too_short", solvers=None)
    assert outcome == Scored(reward, {"rejected/too_short": 1.0})


@pytest.mark.parametrize("value", [-0.5, 1.5])
def test_a_reward_that_is_no_share_of_right_pays_no_proposer(value):
    """By 1 - the mean, a question would be worth 1.25 instead of 1."""
    with pytest.raises(TrainingError, match=f"exact_match gave {value:g} for an attempt"):
        ProposerReward("failure")(proposal(), solvers=solvers(Scored(value, {"exact_match": value}), WRONG))


class TestTrap12AGradedRewardIsNotRightOnlyAtOne:
    """Five answers of three words with a fourth one have an F1 of 6/7: the question is easy."""

    def worth(self, name, *values, **options):
        graded = [Scored(value + 1.0, {"f1": value}) for value in values]  # the reward has another part, too
        return ProposerReward(name, 0.0, success="f1", **options)(proposal(), solvers=solvers(*graded))

    def test_search_self_play_pays_one_minus_the_mean_of_the_answers_rewards(self):
        assert self.worth("failure", *[6 / 7] * 5).reward == pytest.approx(1 / 7)
        assert self.worth("failure", 1.0, 0.5, 0.0, 0.0).reward == pytest.approx(1 - 1.5 / 4)
        assert self.worth("failure", 1.0, 0.5).parts["solver/mean"] == 0.75

    def test_the_others_count_an_attempt_as_right_from_a_threshold_on(self):
        """Of 5, 4 are right: (5 - 4) / (5 - 1), 4 * 4/5 * 1/5, 1 - 2 * (4/5 - 1/2)."""
        values = (6 / 7, 0.7, 1.0, 0.75, 0.69)
        for name, reward in (("linear", 1 / 4), ("parabolic", 16 / 25), ("uncertainty", 2 / 5), ("between", 1)):
            assert self.worth(name, *values).reward == pytest.approx(reward)
        assert self.worth("linear", *[6 / 7] * 5).reward == 0.0

    def test_the_threshold_is_settable(self):
        assert self.worth("linear", 6 / 7, 1.0, 0.0, 0.0, right_from=1.0).reward == 1.0
        assert self.worth("linear", 6 / 7, 1.0, 0.2, 0.0, right_from=0.2).reward == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", DIFFICULTIES)
class TestTrap1AnOutageOfTheSolversEngineDoesNotPayTheProposer:
    """Failed attempts that count as wrong would make every easy question look hard."""

    def worth(self, name: str, *outcomes: Outcome) -> Outcome:
        reward = ProposerReward(name, format_weight=0.5, max_failed=1.0)
        return reward(proposal(), rejected=None, solvers=solvers(*outcomes))

    def test_failed_attempts_are_neither_right_nor_wrong(self, name):
        """The share of failures is told by those that are left; of the rest there is no reward at all."""
        for valid in ([RIGHT] * 4, [RIGHT, RIGHT, WRONG], [WRONG, WRONG], [RIGHT, WRONG], [WRONG]):
            clean, failing = self.worth(name, *valid), self.worth(name, DOWN, *valid, LATE, DOWN)
            if name == "failure":
                assert failing == Scored(clean.reward, {**clean.parts, "solver/invalid": 3.0})
            else:
                assert failing == Invalid(
                    StopReason.TOOL_FAILED,
                    f"3 of {3 + len(valid)} of the solver's attempts failed: the engine is down",
                )

    def test_an_outage_does_not_change_the_mean_reward_of_a_question(self, name):
        """Every way in which five attempts at a question of p = 0.1 can end, each also failing with 0.3: the mean
        over the scored is that without failures. Over what is left of partly failed groups it would be less."""
        reward = ProposerReward(name, format_weight=0.0)

        def mean(failing: float) -> float:
            chances = ((RIGHT, 0.1 * (1 - failing)), (WRONG, 0.9 * (1 - failing)), (DOWN, failing))
            scored: list[tuple[float, float]] = []
            for attempts in product(chances, repeat=5):
                outcome = reward(proposal(), solvers=solvers(*(attempt for attempt, _ in attempts)))
                if isinstance(outcome, Scored):
                    scored.append((prod(chance for _, chance in attempts), outcome.reward))
            return sum(chance * value for chance, value in scored) / sum(chance for chance, _ in scored)

        assert mean(0.3) == pytest.approx(mean(0.0))
        assert name != "linear" or mean(0.0) == pytest.approx(5 / 4 * (0.9 - 0.9**5))

    def test_when_all_fail_there_is_no_reward_at_all(self, name):
        assert self.worth(name, LATE, DOWN, DOWN, LATE, DOWN) == Invalid(
            StopReason.TOOL_FAILED, "5 of 5 of the solver's attempts failed: the engine is down"
        )

    def test_a_single_attempt_that_was_meant_to_be_single_is_scored(self, name):
        assert self.worth(name, RIGHT).parts["difficulty"] == 0.0

    @pytest.mark.parametrize(("again", "lasting", "bound", "scored"), BOUNDS)
    def test_too_many_failed_attempts_leave_no_reward_also_where_others_took_their_place(
        self, name, again, lasting, bound, scored
    ):
        valid = [RIGHT, WRONG, WRONG, WRONG, WRONG][lasting:]
        group = replace(solvers(*valid, *[DOWN] * lasting), replaced=((ATTEMPT, DOWN),) * again)
        outcome = ProposerReward(name, **({} if bound is None else {"max_failed": bound}))(proposal(), solvers=group)
        if scored and not (lasting and name != "failure"):
            assert isinstance(outcome, Scored)
        else:
            words = f"{again + lasting} of {again + 5} of the solver's attempts failed: the engine is down"
            assert outcome == Invalid(StopReason.TOOL_FAILED, words)


def test_a_bound_on_failed_attempts_keeps_an_outage_from_paying_the_proposer():
    """Attempts that search are right and half of them fail; those that guess are wrong and never fail. A quarter is
    lost, and 2 of 3 of those that are left are wrong, not 1 of 2. At most one of five is lost in .75^5 + 5 x .25 x
    .75^4 = .633 of the questions."""

    def of(**options: float) -> tuple[float, float]:
        reward, total, scored = ProposerReward("failure", format_weight=0.0, **options), 0.0, 0.0
        for attempts in product(((RIGHT, 0.25), (DOWN, 0.25), (WRONG, 0.5)), repeat=5):
            outcome = reward(proposal(), solvers=solvers(*(attempt for attempt, _ in attempts)))
            if isinstance(outcome, Scored):
                chance = prod(chance for _, chance in attempts)
                scored, total = scored + chance, total + chance * (outcome.reward - 0.5)
        return scored, total

    assert of(max_failed=1.0) == pytest.approx((1 - 0.25**5, (2 / 3 - 1 / 2) * (1 - 0.25**5)))
    assert of() == pytest.approx((0.6328125, (2 / 3 - 1 / 2) * 0.6328125))
    assert of(max_failed=0.0) == pytest.approx((0.75**5, (2 / 3 - 1 / 2) * 0.75**5))
