import json
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.errors import DataError
from evoseek.text.normalization import (
    METRICS,
    answer_value,
    comparable,
    exact_match,
    f1,
    guarded_substring_match,
    normalise,
    set_f1,
    substring_match,
    usable_question,
)
from evoseek.types import Question, StopReason, Trajectory

PLAIN = st.sampled_from("aAnNtThHeExyz019 \n_!?()")
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
    with pytest.raises(DataError, match=r"'q7'.*is empty without .*Correct or remove"):
        usable_question(Question("q7", "who ?", (golden, golden)))
    assert usable_question(Question("q7", "who ?", (golden, "Paris"))) == Question("q7", "who ?", ("Paris",))


def test_a_question_without_golden_answers_is_refused() -> None:
    with pytest.raises(DataError, match=r"'q8'.*no golden answers.*Add one or remove"):
        usable_question(Question("q8", "who ?", ()))


def test_usable_golden_answers_pass() -> None:
    question = Question("q9", "who ?", ("Paris", "42", "東京"))
    assert usable_question(question) is question


@given(st.text(), st.lists(st.text(), max_size=3))
def test_metrics_are_in_range(prediction: str, golden: list[str]) -> None:
    values = {name: metric(prediction, golden) for name, metric in METRICS.items()}
    assert all(0.0 <= value <= 1.0 for value in values.values())


@given(st.text(PLAIN), st.lists(st.text(PLAIN), max_size=3))
def test_of_plain_words_a_guarded_match_implies_a_plain_one(prediction: str, golden: list[str]) -> None:
    assert guarded_substring_match(prediction, golden) <= substring_match(prediction, golden)


@given(st.text(PLAIN))
def test_the_own_form_of_plain_words_is_squads(text: str) -> None:
    assert comparable(text) == normalise(text)


@pytest.mark.parametrize(
    ("prediction", "golden"),
    [
        *(("40 °C", "-40 °C"), ("35", "3.5"), ("12", "1/2"), ("1020", "10-20"), ("31", "3:1"), ("382", "3.8.2")),
        *(("106", "10⁶"), ("1e5", "1e-5"), ("20240501", "2024-05-01"), ("212", "2½"), ("C", "C++"), ("A", "A*")),
        *(("3142", "3.142"), ("5", ".5"), ("40", "minus 40"), ("Paul", "Jean-Paul"), ("F", "F#")),
        *(("1012", "101_2"), ("210", "2**10")),
    ],
)
def test_another_number_or_name_is_wrong_in_both_directions(prediction: str, golden: str) -> None:
    assert not guarded_substring_match(prediction, [golden])
    assert not guarded_substring_match(golden, [prediction])


@pytest.mark.parametrize(
    ("prediction", "golden"),
    [
        *(("O’Brien", "O'Brien"), ("1939–1945", "1939-1945"), ("“Meri Tolu”", "Meri Tolu"), ("「東京」。", "東京")),
        *(
            ("２０２４年", "2024年"),
            ("Cafe\u0301", "Café"),
            ("\ufb01nal", "final"),
            ("١٩٥٨", "1958"),
            ("1 000", "1,000"),
        ),
        *(("1.250.000", "1250000"), ("−40", "-40"), ("½", "1/2"), ("10^6", "10⁶"), ("Java™", "Java"), ("3,5", "3.5")),
        *(("U.S.", "US"), ("well-known", "wellknown"), ("40°C", "40 °C"), ("1939 – 1945", "1939-1945"), ("+40", "40")),
        ("№5", "No 5"),
    ],
)
def test_forms_of_one_answer_are_right(prediction: str, golden: str) -> None:
    assert guarded_substring_match(prediction, [golden]) == guarded_substring_match(golden, [prediction]) == 1.0


@given(st.text().filter(normalise))
def test_a_text_matches_itself(text: str) -> None:
    assert exact_match(text, [text]) == guarded_substring_match(text, [text]) == f1(text, [text]) == 1.0


def test_citations_are_not_scored():
    asked = Question("q", "what begins it?", ("SAVEPOINT",))
    rolled = Trajectory("t", asked, "solver", (), (), (), StopReason.ANSWERED, "SAVEPOINT [2]")
    assert [answer_value(metric, rolled) for metric in METRICS] == [1.0] * len(METRICS)
    refused = replace(rolled, question=Question("q", "?", (), {"answerable": False}), answer="Not found. [1]")
    assert answer_value("exact_match", refused) == 1.0
    alone = replace(rolled, question=replace(rolled.question, golden_answers=("2",)), answer="[2]")
    assert [answer_value(metric, alone) for metric in METRICS] == [0.0] * len(METRICS)
