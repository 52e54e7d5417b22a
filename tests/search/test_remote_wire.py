"""The wire format of retrieval servers, both ways."""

from __future__ import annotations

import math

import pytest

from evoseek.errors import ToolError
from evoseek.search.remote import read_result, result_body
from evoseek.types import Passage

PASSAGE = Passage("a#1", "a", "Kalo\n(town)", "Kalo is\na town.", 5, 20, score=0.5)


def test_a_result_as_search_r1_sends_it() -> None:
    document = {"id": "a#1", "document_id": "a", "contents": "Kalo (town)\nKalo is\na town."}
    assert result_body([[PASSAGE], []], return_scores=True) == {"result": [[{"document": document, "score": 0.5}], []]}
    assert result_body([[PASSAGE]], return_scores=False) == {"result": [[document]]}


def test_a_result_is_read_as_it_was_sent() -> None:
    read = read_result(result_body([[PASSAGE], []], return_scores=True), queries=2, k=3)
    assert read == [[Passage("a#1", "a", "Kalo (town)", "Kalo is\na town.", 0, 15, score=0.5)], []]


def test_half_a_character_is_replaced() -> None:
    """JSON can name one, and no file or reply can hold it."""
    document = {"id": "a\ud83d", "document_id": "\udc00", "contents": "Kalo\ud83d\na \ud83d", "title": "K\ud83d"}
    place = {"file": "f\ud83d", "start": 2, "end": 5, "heading": "\ud83dh"}
    (passage,) = read_result({"result": [[document | place]]}, queries=1, k=1)[0]
    texts = (passage.id, passage.document_id, passage.title, passage.text, passage.file, passage.heading)
    assert texts == ("a\ufffd", "\ufffd", "K\ufffd", "a \ufffd", "f\ufffd", "\ufffdh")


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf, 10**400, "1", None])
def test_what_is_no_score_is_none(score: object) -> None:
    body = {"result": [[{"document": {"contents": "Kalo\na town"}, "score": score}]]}
    ((passage,),) = read_result(body, queries=1, k=1)
    assert (passage.title, passage.score) == ("Kalo", None)


def test_results_of_other_servers() -> None:
    """Search-R1's corpus has titles in quotation marks, its web servers send no ids, and without scores there is no
    `document`."""
    body = {"result": [[{"document": {"id": 7, "contents": '"Kalo"\na town'}, "score": 1}, {"contents": "Meri"}]]}
    (first, second) = read_result(body, queries=1, k=5)[0]
    assert (first.id, first.document_id, first.title, first.text, first.score) == ("7", "7", "Kalo", "a town", 1)
    assert (second.title, second.text, second.score, len(second.id)) == ("", "Meri", None, 16)
    several = {"result": [[{"id": None, "document_id": None, "contents": name} for name in ("Kalo", "Meri")]]}
    assert len({passage.document_id for passage in read_result(several, queries=1, k=2)[0]}) == 2
    assert read_result(body, queries=1, k=1) == [[first]]


@pytest.mark.parametrize(
    "body",
    [
        None,
        {"detail": "no"},
        {"result": []},
        {"result": [[], []]},
        {"result": {"0": []}},
        {"result": [None]},
        {"result": [["text"]]},
        {"result": [[{"document": {"id": "1"}, "score": 1.0}]]},
    ],
)
def test_no_other_reply_is_taken_for_nothing_found(body: object) -> None:
    with pytest.raises(ToolError, match=r"its reply|there is the document"):
        read_result(body, queries=1, k=3)
    assert read_result({"result": [[]]}, queries=1, k=3) == [[]]


def test_citations_are_sent_and_read() -> None:
    cited = Passage("a#1", "a", "Kalo", "A town.", 5, 12, file="a.pdf", page=2, heading="Towns")
    body = result_body([[cited]], return_scores=False)
    sent = {"file": "a.pdf", "page": 2, "heading": "Towns", "title": "Kalo", "start": 5, "end": 12}
    contents = "Kalo: Towns\nA town."  # as a policy is shown it, also by a client that knows nothing but this
    assert body == {"result": [[{"id": "a#1", "document_id": "a", "contents": contents, **sent}]]}
    assert read_result(body, queries=1, k=1) == [[cited]]
    document = {"id": "a#1", "document_id": "a", "contents": "Kalo\nA town."}
    for other in ({"file": "a.pdf"}, {**sent, "file": 3}, {**sent, "end": 99}, {**sent, "start": "5"}):
        read = read_result({"result": [[document | other]]}, queries=1, k=1)
        assert read == [[Passage("a#1", "a", "Kalo", "A town.", 0, 7)]]  # as of a server without citations
