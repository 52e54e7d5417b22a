"""Results as a function of samples, with numbers worked out by hand."""

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.eval.results import Answer, Point, Results, RiskCoverage, pass_at_k
from evoseek.eval.sample import Sample
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


def test_risk_over_coverage_by_hand():
    """Six samples: four answers (right .9, wrong .8, right .8, wrong .3), a refusal and one without an answer. At .9
    the coverage is 1/6 and the risk 0; the two at .8 come together: 3/6 and 1/3; at .3 4/6 and 1/2. So the area is
    (0 + 1/3 + 1/3 + 1/2) / 4."""
    found = results(
        sample("a", 0, 1.0, answer="Meri", certainty=0.9),
        sample("b", 0, 0.0, answer="Tor", certainty=0.8),
        sample("c", 0, 1.0, answer="Ane", certainty=0.8),
        sample("d", 0, 0.0, answer="B", certainty=0.3, answerable=False),
        sample("e", 0, 1.0, answer="unknown", certainty=0.99, answerable=False),
        sample("f", 0, 0.0),
        n=6,
        k=1,
    )
    curve = found.risk_coverage
    assert curve.points == [Point(0.9, 1 / 6, 0.0), Point(0.8, 3 / 6, 1 / 3), Point(0.3, 4 / 6, 1 / 2)]
    assert curve.area == pytest.approx((0 + 1 / 3 + 1 / 3 + 1 / 2) / 4)
    assert {share: (risk.mean, risk.n) for share, risk in found.risks().items()} == {
        0.25: (0.0, 1), 0.5: (1 / 3, 3), 0.75: (1 / 3, 3), 1.0: (0.5, 4)
    }  # fmt: skip
    assert found.risks()[1.0].interval == wilson_interval(2, 4)


def test_a_risk_is_a_share_of_answers_and_its_unit_is_the_question():
    """Of one question three of three answers are wrong, of another none of one: three of four, of two questions."""
    wrong = [sample("a", n, 0.0, answer="x", certainty=0.5) for n in range(3)]
    right = [sample("b", 0, 1.0, answer="x", certainty=0.5), *(sample("b", n, 0.0) for n in (1, 2))]
    risk = results(*wrong, *right, n=2, k=3).risks()[1.0]
    assert (risk.mean, risk.n) == (0.75, 2)
    assert 0 <= risk.interval.low < 0.1
    assert risk.interval.high == 1.0


@given(st.data())
def test_the_table_of_risks_is_read_off_the_curve(data: st.DataObject):
    """Also with several samples a question; and of equal answers of a question, the interval is that of questions."""
    draw, k = data.draw, 3
    drawn = [
        sample(q, n, float(draw(st.booleans())), answer=draw(st.sampled_from(["x", "unknown"])), certainty=certainty)
        for q in "abcde"
        for n in range(k)
        if (certainty := draw(st.sampled_from([0.1, 0.5, 0.5, 0.9]))) is not None
    ]
    found = results(*drawn, n=5, k=k)
    if (curve := found.risk_coverage) is None:
        return
    by_coverage = {point.coverage: point.risk for point in curve.points}
    for share, risk in found.risks().items():
        assert risk.mean == pytest.approx(by_coverage[len(curve.most_certain(share)) / 15])
        assert 0 <= risk.interval.low <= risk.mean + 1e-9
        assert risk.mean - 1e-9 <= risk.interval.high <= 1


def test_answers_that_agree_within_their_questions_count_as_one_each():
    wrong = [sample(q, n, float(q in "ab"), answer="x", certainty=0.5) for q in "abcdef" for n in range(4)]
    once = results(*(one for one in wrong if not one.number), n=6, k=1).risks()[1.0]
    four = results(*wrong, n=6, k=4).risks()[1.0]
    assert (four.mean, four.n, four.interval) == (once.mean, once.n, once.interval)


@pytest.mark.parametrize(("answers", "quarter", "half"), [(4, 1, 2), (5, 2, 3), (7, 2, 4), (8, 2, 4)])
def test_a_share_of_the_most_certain_answers_is_rounded_up(answers: int, quarter: int, half: int):
    curve = RiskCoverage.of(answers, [Answer(n / 10, False, str(n)) for n in range(answers)])
    assert (len(curve.most_certain(0.25)), len(curve.most_certain(0.5))) == (quarter, half)


def test_without_certainties_there_is_no_curve():
    found = results(sample("a", 0, 1.0, answer="x"), sample("b", 0, 0.0, answer="unknown", certainty=1.0), n=2, k=1)
    assert (found.risk_coverage, found.risks()) == (None, {})


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.booleans()), min_size=1, max_size=12), st.randoms())
def test_the_order_of_answers_changes_nothing_and_the_area_lies_within_the_risks(answers, random):
    made = [Answer(certainty, wrong, str(n)) for n, (certainty, wrong) in enumerate(answers)]
    curve = RiskCoverage.of(len(made), made)
    random.shuffle(made)
    again = RiskCoverage.of(len(made), made)
    assert (curve.points, curve.area) == (again.points, pytest.approx(again.area))
    risks = [point.risk for point in curve.points]
    assert min(risks) - 1e-9 <= curve.area <= max(risks) + 1e-9
    assert curve.points[-1].coverage == 1.0
    assert curve.points[-1].risk == pytest.approx(sum(wrong for _, wrong in answers) / len(answers))
