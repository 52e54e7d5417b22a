import pytest

from evoseek.questions.questions import evidence_of, missing, names_of, recall
from evoseek.types import Passage, Question

PASSAGES = [Passage("d1#0", "d1", "The  Witch's Curse", ""), Passage("d1#1", "d1", "The Witch's Curse", "")]


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (("the witch's curse", "Riccardo Freda"), 0.5),
        (("d1",), 1.0),
        (("d1#1", "d1#2"), 0.5),
        (("d2", "d3"), 0.0),
        ((), None),
    ],
)
def test_recall_by_title_or_id(evidence, found):
    assert recall(evidence, PASSAGES) == found


def test_the_same_document_named_twice_is_needed_once():
    assert recall(("D1", "d1", "d2"), PASSAGES) == 0.5


def test_evidence_is_read_from_the_metadata():
    assert evidence_of(Question("q", "who?", ("x",), {"evidence": ["a", 3, "b"]})) == ("a", "b")
    assert evidence_of(Question("q", "who?", ("x",), {"evidence": "a"})) == ()
    assert evidence_of(Question("q", "who?", ("x",), {"evidence": ["", " ", "b"]})) == ("b",)


def test_what_is_missing():
    assert missing(("d2", "THE WITCH'S CURSE"), names_of(PASSAGES)) == ["d2"]
