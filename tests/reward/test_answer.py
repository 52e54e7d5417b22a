import json
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.reward.answer import (
    METRICS,
    exact_match,
    f1,
    guarded_substring_match,
    normalise,
    set_f1,
    substring_match,
    usable_question,
)
from evoseek.types import Question

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "scoring.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["prediction"][:20])
def test_metrics_equal_the_reference_implementations(case: dict) -> None:
    """F1 but for the last bit: theirs rounds precision, recall and their mean, ours once."""
    arguments = case["prediction"], case["golden_answers"]
    assert exact_match(*arguments) == case["em"]
    assert substring_match(*arguments) == case["subem"]
    assert f1(*arguments) == pytest.approx(case["f1"], rel=1e-15, abs=0)
    assert set_f1(*arguments) == pytest.approx(case["set_f1"], rel=1e-15, abs=0)


def test_trap_where_f1_is_the_same_fraction_it_is_the_same_number():
    """Else a group in which no answer is better than another has advantages, and counts as one with a signal."""
    found: dict[Fraction, set[float]] = {}
    for n, m in product(range(1, 13), repeat=2):
        for common in range(1, min(n, m) + 1):
            words = [f"w{number}" for number in range(n)]
            golden = [*words[:common], *(f"g{number}" for number in range(m - common))]
            for metric in (f1, set_f1):
                value = metric(" ".join(words), [" ".join(golden)])
                found.setdefault(Fraction(2 * common, n + m), set()).add(value)
    assert all(values == {float(fraction)} for fraction, values in found.items())


@pytest.mark.parametrize(
    ("prediction", "golden", "expected"),
    [
        ("The answer is Paris.", "Paris", 1.0),
        ("scarcity", "car", 0.0),  # letters inside a word
        ("New Zealand York", "New York", 0.0),  # words that are not next to each other
        ("York New", "New York", 0.0),
        ("one two three four five six seven eight nine ten Paris", "Paris", 1.0),  # ten words more: the most allowed
        ("one two three four five six seven eight nine ten eleven Paris", "Paris", 0.0),
        ("", "Paris", 0.0),
        ("yes, both", "yes", 1.0),
        ("No or yes", "no", 0.0),  # right whatever is asked
        ("anything", "the", 0.0),  # a golden answer of nothing matches nothing
    ],
)
def test_guarded_substring_match(prediction: str, golden: str, expected: float) -> None:
    assert guarded_substring_match(prediction, [golden]) == expected


def test_trap_stuffing_many_candidates_wins_the_plain_substring_match_but_not_the_guarded_one() -> None:
    stuffed = " ".join(f"city{number}" for number in range(50)) + " Paris"
    assert substring_match(stuffed, ["Paris"]) == 1.0
    assert guarded_substring_match(stuffed, ["Paris"]) == 0.0


@pytest.mark.parametrize("metric", METRICS.values())
def test_without_a_golden_answer_nothing_matches(metric) -> None:
    assert metric("Paris", ()) == 0.0


@pytest.mark.parametrize("golden", ["the", "", "  ", "?!", "A.", "an the"])
def test_trap_a_golden_answer_that_normalises_to_nothing_is_refused(golden: str) -> None:
    assert substring_match("whatever", [golden]) == 1.0  # why it must be refused
    with pytest.raises(DataError, match=r"'q7'.*nothing is left.*Correct or remove"):
        usable_question(Question("q7", "who ?", (golden, golden)))
    assert usable_question(Question("q7", "who ?", (golden, "Paris"))) == Question("q7", "who ?", ("Paris",))


def test_a_question_without_golden_answers_is_refused() -> None:
    with pytest.raises(DataError, match=r"'q8'.*no golden answers.*Add one or remove"):
        usable_question(Question("q8", "who ?", ()))


def test_usable_golden_answers_pass() -> None:
    question = Question("q9", "who ?", ("Paris", "42", "東京"))
    assert usable_question(question) is question


@given(st.text(), st.lists(st.text(), max_size=3))
def test_metrics_are_in_range_and_a_guarded_match_implies_a_plain_one(prediction: str, golden: list[str]) -> None:
    values = {name: metric(prediction, golden) for name, metric in METRICS.items()}
    assert all(0.0 <= value <= 1.0 for value in values.values())
    assert values["guarded_substring_match"] <= values["substring_match"]


@given(st.text().filter(normalise))
def test_a_text_matches_itself(text: str) -> None:
    assert exact_match(text, [text]) == guarded_substring_match(text, [text]) == f1(text, [text]) == 1.0
