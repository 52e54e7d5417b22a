"""Reviews: the sample, the verdicts that are kept, the share that is right, and the test set."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from evoseek.curation.reviewing import Review, RightShare, evidence_passages
from evoseek.errors import DataError
from evoseek.questions.questions import load_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question

PASSAGES = [
    Passage("kalo#0", "kalo", "Kalo", "The mayor of Kalo is Meri Tolu."),
    Passage("kalo#1", "kalo", "Kalo", "It rains often."),
    Passage("vesu#0", "vesu", "Vesu", "Vesu is old."),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return LexicalIndex.build(tmp_path_factory.mktemp("review") / "index", PASSAGES)


def question(number, answer="Meri"):
    return Question(f"q{number}", f"who is number {number}?", (answer,))


TEN = [question(number) for number in range(10)]


def opened(tmp_path, questions=TEN, *, count=4, seed=0, store=None, log="review.jsonl"):
    return Review.open(questions, tmp_path / log, tmp_path / "reviewed.jsonl", store, count=count, seed=seed)


def ids(questions):
    return [question.id for question in questions]


def test_the_sample_is_that_of_the_seed_and_a_larger_one_begins_with_it(tmp_path):
    sample = ids(opened(tmp_path).questions)
    assert len(set(sample)) == 4
    assert ids(opened(tmp_path).questions) == sample
    assert ids(opened(tmp_path, count=7).questions)[:4] == sample
    assert ids(opened(tmp_path, seed=1).questions) != sample
    assert len(opened(tmp_path, count=99).questions) == 10


def test_questions_that_are_added_to_the_file_leave_the_order_of_the_others_as_it_was(tmp_path):
    before = ids(opened(tmp_path, count=10).questions)
    after = ids(opened(tmp_path, [*TEN, question(10), question(11)], count=12).questions)
    assert [id for id in after if id not in ("q10", "q11")] == before


def test_verdicts_of_several_threads_are_all_in_the_test_set(tmp_path):
    for number in range(10):
        review = opened(tmp_path, count=10, log=f"{number}.jsonl")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda one, review=review: review.judge(one, "right"), range(10)))
        assert set(ids(load_questions(tmp_path / "reviewed.jsonl"))) == set(ids(TEN))
        (tmp_path / "reviewed.jsonl").unlink()


def test_verdicts_are_kept_at_once_and_resumed(tmp_path):
    review = opened(tmp_path)
    review.judge(0, "right")
    review.judge(1, "wrong")
    row = json.loads((tmp_path / "review.jsonl").read_text().splitlines()[0])
    first = review.questions[0]
    assert {**row, "time": ""} == {
        "id": first.id,
        "question": first.text,
        "answer": ["Meri"],
        "verdict": "right",
        "time": "",
    }
    again = opened(tmp_path, count=6)
    assert ids(again.questions)[:2] == ids(review.questions)[:2]
    assert again.verdicts == {0: "right", 1: "wrong"}
    assert again.next == 2


def test_the_last_verdict_on_a_question_counts(tmp_path):
    review = opened(tmp_path)
    review.judge(0, "wrong")
    review.judge(1, "right")
    review.judge(0, "right")
    assert opened(tmp_path).verdicts == {0: "right", 1: "right"}
    assert ids(load_questions(tmp_path / "reviewed.jsonl")) == ids(review.questions)[:2]
    review.judge(0, "unclear")
    review.judge(1, "unclear")
    assert (tmp_path / "reviewed.jsonl").read_text() == ""


def test_a_verdict_is_about_a_question_with_its_answer_and_not_about_an_id(tmp_path):
    review = opened(tmp_path, [question(1, "Meri")])
    review.judge(0, "right")
    assert opened(tmp_path, [question(1, "Lina")]).verdicts == {}


def test_the_share_is_of_right_and_wrong_with_wilsons_interval():
    # (0.8 + 1.96^2/20 -+ 1.96 sqrt(0.016 + 1.96^2/400)) / (1 + 1.96^2/10)
    assert str(RightShare(8, 2, 3)) == "True: 0.800 [0.490, 0.943] (8 right, 2 wrong; 3 unclear, not counted)"
    assert str(RightShare(0, 0, 3)) == "No share: no question was judged right or wrong (3 unclear)."


def test_the_test_set_keeps_what_other_reviews_put_there_each_with_an_id_of_its_own(tmp_path):
    opened(tmp_path, [question(1)], log="first.jsonl").judge(0, "right")
    other = Question("q1", "who else?", ("Lina",), {"hops": 2})
    opened(tmp_path, [other], log="second.jsonl").judge(0, "right")
    tests = load_questions(tmp_path / "reviewed.jsonl")
    assert [test.text for test in tests] == ["who is number 1?", "who else?"]
    assert len(set(ids(tests))) == 2
    assert tests[1].metadata == {"hops": 2}
    opened(tmp_path, [other], log="second.jsonl").judge(0, "wrong")
    assert [test.text for test in load_questions(tmp_path / "reviewed.jsonl")] == ["who is number 1?"]


@pytest.mark.parametrize("others", [TEN[:1], [question(20)], [question(number, "Lina") for number in range(10)]])
def test_the_test_set_keeps_what_was_judged_right_in_other_questions(tmp_path, others):
    """The question file has lost some, or the file of the verdicts is that of several."""
    for number in range(4):
        opened(tmp_path).judge(number, "right" if number else "wrong")
    before = sorted(ids(load_questions(tmp_path / "reviewed.jsonl")))
    assert len(before) == 3
    review = opened(tmp_path, others)
    assert sorted(ids(load_questions(tmp_path / "reviewed.jsonl"))) == before
    number = review.next
    if number is not None:
        review.judge(number, "right")
    assert set(before) <= set(ids(load_questions(tmp_path / "reviewed.jsonl")))


@pytest.mark.parametrize(("number", "verdict"), [(0, "perhaps"), (4, "right"), (-1, "right")])
def test_no_verdict_on_no_question(tmp_path, number, verdict):
    with pytest.raises(DataError, match="Expected right, wrong, unclear, for a question from 0 to 3"):
        opened(tmp_path).judge(number, verdict)
    assert not (tmp_path / "review.jsonl").exists()


def test_a_damaged_log_is_named_with_its_line(tmp_path):
    (tmp_path / "review.jsonl").write_text('{"question": "who?", "answer": ["Meri"], "verdict": "maybe"}\n')
    with pytest.raises(DataError, match=r"review\.jsonl:1 is not a verdict"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (["kalo#1"], ["kalo#1"]),
        (["Kalo"], ["kalo#0", "kalo#1"]),
        (["vesu"], ["vesu#0"]),
        ([{"id": "kalo#0"}, {"id": "mine", "title": "Mine", "text": "A text."}], ["kalo#0", "mine"]),
        (["kalo#1", "Kalo"], ["kalo#1", "kalo#0"]),
        (["nobody"], []),
        ("kalo#1", []),
        (None, []),
    ],
)
def test_evidence_names_passages_documents_or_holds_them_itself(store, evidence, found):
    named = evidence_passages(Question("q", "who?", ("Meri",), {"evidence": evidence}), store)
    assert sorted(passage.id for passage in named) == sorted(found)


def test_a_question_without_evidence_is_shown_with_what_a_search_finds(tmp_path, store):
    asked = Question("q", "who is the mayor of Kalo?", ("Meri Tolu",))
    shown = opened(tmp_path, [asked], store=store).json(0)
    assert (shown["answers"], shown["verdict"]) == (["Meri Tolu"], None)
    assert shown["note"] == "The question names no passage; a search for it finds these."
    assert shown["passages"][0]["text"] == "The mayor of Kalo is Meri Tolu."
    assert shown["passages"][0]["spans"] == [[21, 30]]


HIDDEN = Question("q", "who is the mayor of Kalo or Vesu?", (), {"answerable": False, "hidden": ["kalo"]})


def test_a_question_whose_document_is_hidden_is_not_judged(tmp_path, store):
    """The documents answer it, so that nobody could say whether refusing is right. One that they do not answer is."""
    other = Question("r", "who is the king of Vesu?", (), {"answerable": False})
    review = opened(tmp_path, [HIDDEN, other], store=store)
    assert [question.id for question in review.questions] == ["r"]
    review.judge(0, "right")
    assert [question.id for question in load_questions(review.tests)] == ["r"]


def test_if_something_is_hidden_from_each_question_none_can_be_judged(tmp_path, store):
    with pytest.raises(DataError, match="All 1 questions have hidden documents"):
        opened(tmp_path, [HIDDEN], store=store)


def test_without_an_index_only_passages_that_a_question_holds_are_shown(tmp_path):
    held = Question("q", "who?", (), {"answerable": False, "evidence": ["kalo#0", {"text": "A text."}]})
    shown = opened(tmp_path, [held]).json(0)
    assert [passage["text"] for passage in shown["passages"]] == ["A text."]
    assert shown["answers"] == ["(The documents do not answer it.)"]


@pytest.mark.parametrize("verdict", ["right", "wrong"])
def test_a_review_that_is_opened_writes_what_a_killed_one_did_not(tmp_path, verdict):
    """The process ended after it had written its last verdict, and before it wrote the test set."""
    review = opened(tmp_path)
    for number in range(3):
        review.judge(number, "right")
    before = (tmp_path / "reviewed.jsonl").read_bytes()
    review.judge(0, verdict)
    review.judge(3, "right")  # of which a killed process had written the verdict alone
    whole = (tmp_path / "reviewed.jsonl").read_bytes()
    for lost in (before, b"", None):
        (tmp_path / "reviewed.jsonl").unlink()
        if lost is not None:
            (tmp_path / "reviewed.jsonl").write_bytes(lost)
        for count in (4, 1):  # also of verdicts beyond a smaller sample
            opened(tmp_path, count=count)
            assert (tmp_path / "reviewed.jsonl").read_bytes() == whole


def test_a_review_that_is_opened_writes_nothing_where_nothing_is_missing(tmp_path):
    opened(tmp_path).judge(0, "right")
    before = (tmp_path / "reviewed.jsonl").stat()
    opened(tmp_path)
    after = (tmp_path / "reviewed.jsonl").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_several_reviewers_at_once_lose_nothing(tmp_path):
    """Each has a log of its own, and all have one test set."""
    reviews = [opened(tmp_path, [question(10 * one + n) for n in range(8)], count=8, log=f"{one}") for one in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda review: [review.judge(number, "right") for number in range(8)], reviews))
    assert len(load_questions(tmp_path / "reviewed.jsonl")) == 32
