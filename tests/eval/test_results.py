"""Results as a function of samples, with numbers worked out by hand."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.eval.draw import Sample
from evoseek.eval.results import Results, pass_at_k
from evoseek.eval.statistics import score_interval, wilson_interval


def sample(question, number, value, *, invalid=None, **more):
    scores = {} if invalid else {"exact_match": value, "f1": value}
    reason = invalid or "answered"
    return Sample(question, number, "", scores, reason, invalid=invalid, **more)


def results(*samples, n=2, k=2, metric="exact_match"):
    return Results(metric, n, k, samples)


def test_samples_are_averaged_by_question_first():
    """Questions at 1/2 and 1: the mean is 3/4, and the interval is that of two values, not of four."""
    found = results(sample("a", 0, 1.0), sample("a", 1, 0.0), sample("b", 0, 1.0), sample("b", 1, 1.0))
    score = found.score("exact_match")
    assert (score.mean, score.n, score.n_invalid) == (0.75, 2, 0)
    assert score.interval == score_interval([0.5, 1.0])
    assert found.is_final
    assert found.metrics == ["exact_match", "f1"]


def test_one_sample_each_has_wilsons_interval():
    found = results(sample("a", 0, 1.0), sample("b", 0, 0.0), k=1)
    assert found.score("exact_match").interval == wilson_interval(1, 2)
    assert found.pass_at("exact_match") == {}


def test_an_invalid_sample_counts_as_wrong_and_is_listed():
    found = results(sample("a", 0, 1.0), sample("b", 0, 0.0, invalid="tool_failed"), k=1)
    assert (found.score("exact_match").mean, found.score("exact_match").n_invalid) == (0.5, 1)
    assert [one.question for one in found.invalid] == ["b"]
    assert not found.is_final


def test_trap_an_item_that_is_missing_is_no_result():
    """The last batch dropped: three of four samples are there, and it is not complete."""
    found = results(sample("a", 0, 1.0), sample("a", 1, 1.0), sample("b", 0, 1.0))
    assert not found.is_final


def test_pass_at_k():
    """Two right of four: of the six pairs one has no right one, so pass@2 is 5/6; and nothing of four is 0."""
    samples = [sample("a", n, float(n < 2)) for n in range(4)] + [sample("b", n, 0.0) for n in range(4)]
    found = results(*samples, k=4)
    passes = found.pass_at("exact_match")
    assert {k: score.mean for k, score in passes.items()} == pytest.approx({1: 1 / 4, 2: 5 / 12, 4: 1 / 2})
    assert passes[1].mean == found.score("exact_match").mean
    assert found.pass_at("f1") == {}


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_counts_the_subsets(drawn):
    n, right, k = drawn
    misses = comb(n - right, k)
    assert pass_at_k(n, right, k) == pytest.approx(1 - misses / comb(n, k))
    assert pass_at_k(n, right, 1) == pytest.approx(right / n)


def test_groups():
    found = results(
        sample("a", 0, 1.0, hops=1, searches=0),
        sample("b", 0, 0.0, hops=2, searches=3),
        sample("c", 0, 1.0, hops=2, searches=3),
        sample("d", 0, 0.0, invalid="deadline", searches=12),
        n=4,
        k=1,
    )
    assert {hops: (score.mean, score.n) for hops, score in found.by("hops", "exact_match").items()} == {
        "1": (1.0, 1),
        "2": (0.5, 2),
    }
    assert list(found.by("searches", "exact_match")) == ["0", "3", "12"]
    assert found.by("stop reason", "f1")["deadline"].mean == 0.0
    assert found.by("source", "f1") == {}


def test_evidence_and_cost():
    found = results(
        sample("a", 0, 1.0, recall=1.0, written=10, read=100, searches=1),
        sample("b", 0, 0.0, recall=0.5, written=20, read=300, searches=2),
        k=1,
    )
    assert {name: score.mean for name, score in found.evidence().items()} == {"recall": 0.75, "all_found": 0.5}
    cost = found.costs()["read"]
    assert (cost.mean, cost.total, cost.n) == (200.0, 400.0, 2)
    assert results(sample("a", 0, 1.0), k=1).evidence() == {}
    assert "written" not in results(sample("a", 0, 1.0), k=1).costs()


def test_answers_and_refusals_of_answerable_and_unanswerable_questions():
    """Of five answerable ones two are right (one of them says "none", which is what it is), one is refused, one wrong
    and one Invalid; of two unanswerable ones one is refused, and the answer to the other has support."""
    found = results(
        sample("a", 0, 1.0, answer="Meri", supported=True),
        sample("b", 0, 1.0, answer="none", supported=False),
        sample("c", 0, 0.0, answer="Not found in the documents!", supported=False),
        sample("d", 0, 0.0, answer="Tor", supported=True),
        sample("e", 0, 0.0, invalid="tool_failed", supported=False),
        sample("f", 0, 1.0, answer="", supported=False, answerable=False),
        sample("g", 0, 0.0, answer="B", supported=True, answerable=False),
        n=7,
        k=1,
    )
    shares = {kind: {name: one.mean for name, one in own.items()} for kind, own in found.answers().items()}
    assert shares == {
        "answerable": {"answered_right": 0.4, "answered_wrong": 0.4, "refused": 0.2}
        | {"shown_right": 0.2, "shown_wrong": 0.2, "not_shown": 0.6},
        "unanswerable": {"answered_right": 0.0, "answered_wrong": 0.5, "refused": 0.5}
        | {"shown_right": 0.0, "shown_wrong": 0.5, "not_shown": 0.5},
    }
    wrong = found.answers()["answerable"]["answered_wrong"]
    assert (wrong.interval, wrong.n, wrong.n_invalid) == (wilson_interval(2, 5), 5, 1)
    assert found.score("exact_match").mean == pytest.approx(3 / 7)  # a refusal of an unanswerable question is right


def test_answers_whose_support_nobody_checked_have_no_share_of_it():
    assert set(results(sample("a", 0, 1.0), n=1, k=1).answers()) == {"answerable"}
    assert "not_shown" not in results(sample("a", 0, 1.0), n=1, k=1).answers()["answerable"]


LONG = {"is_long": True, "answer": "It stops."}


def test_short_answers_are_scored_by_a_match_and_those_of_sentences_by_f1():
    """A match says nothing of sentences: its mean is over the two short ones."""
    found = results(
        sample("a", 0, 1.0, answer="x"),
        sample("b", 0, 0.0, answer="y"),
        sample("c", 0, 0.5, cited=0.5, recall=1.0, **LONG),
        sample("d", 0, 0.25, cited=0.0, recall=0.0, **LONG),
        n=4,
        k=1,
    )
    assert (found.score("exact_match").mean, found.score("exact_match").n) == (0.5, 2)
    kinds = {kind: {name: (one.mean, one.n) for name, one in own.items()} for kind, own in found.kinds().items()}
    assert kinds == {
        "short": {"exact_match": (0.5, 2)},
        "sentences": {"f1": (0.375, 2), "cited": (0.25, 2), "recall": (0.5, 2)},
    }
    assert found.answers()["sentences"]["answered"].mean == 1.0
    assert found.metrics == ["exact_match", "f1"]
    alone = results(*found.samples[2:], n=2, k=1, metric="f1")
    assert alone.metrics == ["f1"]
    assert "short" not in alone.kinds()
    assert results(*found.samples[:2], n=2, k=1).kinds() == {}


def test_an_answer_of_sentences_is_given_shown_or_refused_and_neither_right_nor_wrong():
    answers = ("It stops.", "It stops.", "unknown", None)
    some = [
        sample(name, 0, 1.0, is_long=True, answer=answer, supported=name == "a")
        for name, answer in zip("abcd", answers, strict=True)
    ]
    shares = {name: one.mean for name, one in results(*some, n=4, k=1, metric="f1").answers()["sentences"].items()}
    assert shares == {"answered": 0.5, "refused": 0.25, "shown": 0.25, "not_shown": 0.75}


def test_refusing_has_precision_and_recall():
    """Three are refused, two of them rightly, of three without an answer; one more is not shown by the check."""
    samples = [
        sample("a", 0, 1.0, answer="unknown", answerable=False, supported=False),
        sample("b", 0, 1.0, answer="unknown", answerable=False, supported=False),
        sample("c", 0, 0.0, answer="x", answerable=False, supported=False),
        sample("d", 0, 0.0, answer="unknown", supported=False),
        sample("e", 0, 1.0, answer="x", supported=True),
    ]
    found = {
        name: {key: one.mean for key, one in own.items()}
        for name, own in results(*samples, n=5, k=1).refusals().items()
    }
    assert found["refused"] == pytest.approx({"precision": 2 / 3, "recall": 2 / 3})
    assert found["not_shown"] == {"precision": 0.75, "recall": 1.0}
    assert results(*samples[3:], n=2, k=1).refusals() == {}
