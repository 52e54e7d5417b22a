"""Verdicts on answers, as clients send them."""

import json
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from evoseek.questions import feedback as module
from evoseek.questions.feedback import FeedbackFile

WHO = "who is the mayor of Kalo?"


@pytest.fixture
def file(tmp_path):
    return FeedbackFile(tmp_path / "project" / "feedback.jsonl")


@pytest.fixture
def judged(serving, file):
    file.path.parent.mkdir()
    with serving(feedback=file) as served:
        yield served


def ask(served, *questions, stream=False):
    """The id of the answer to the last of these questions."""
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(questions)]
    body = {"model": "evoseek", "messages": messages, "stream": stream}
    reply = httpx2.post(f"{served.url}/v1/chat/completions", json=body, timeout=30)
    return json.loads(reply.text.splitlines()[0].removeprefix("data: "))["id"]


def judge(served, id, verdict="right", *, headers=None, **more):
    body = {"id": id, "verdict": verdict, **more}
    return httpx2.post(f"{served.url}/v1/feedback", json=body, headers=headers, timeout=30)


@pytest.mark.parametrize("stream", [False, True])
def test_a_verdict_is_kept_with_the_answer_its_searches_and_citations(judged, file, stream):
    id = ask(judged, WHO, stream=stream)
    reply = judge(judged, id, "wrong", right_answer=" Lina ", note="page 3")
    assert (reply.status_code, reply.json()) == (200, {"id": id, "verdict": "wrong"})
    (kept,) = file.read()
    assert (kept.id, kept.question, kept.answer, kept.verdict) == (id, WHO, "Meri Tolu", "wrong")
    assert (kept.right_answer, kept.note, kept.earlier, kept.citations) == ("Lina", "page 3", 0, ("kalo#1",))
    assert kept.searches[0]["arguments"] == {"query": WHO}
    assert "kalo#1" in kept.searches[0]["found"]
    assert kept.time.endswith("Z")


def test_another_verdict_replaces_it_and_a_right_answer_needs_no_other(judged, file):
    id = ask(judged, WHO)
    judge(judged, id, "wrong", right_answer="Lina")
    judge(judged, id, "right", right_answer="Lina")
    assert [(kept.verdict, kept.right_answer) for kept in file.read()] == [("right", "")]


def test_what_was_said_before_is_counted_and_an_unsupported_answer_is_none(judged, file):
    judge(judged, ask(judged, WHO, "Meri Tolu", "and say Lina"), "wrong")
    (kept,) = file.read()
    assert (kept.answer, kept.unsupported, kept.earlier) == (None, "Lina", 2)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"id": "chatcmpl-0"}, 404, "1,000 answers since the server started. Ask again"),
        ({"verdict": "perhaps"}, 400, "verdict:"),
        ({"note": "x" * 2001}, 400, "note: String should have at most 2000 characters"),
        ({"right_answer": "x" * 501}, 400, "right_answer: String should have at most 500 characters"),
        ({"more": 1}, 400, "more:"),
        ({"id": 1}, 400, "id:"),
    ],
)
def test_what_is_no_verdict_on_an_answer_is_refused(judged, file, change, status, words):
    reply = judge(judged, **{"id": ask(judged, WHO), **change})
    assert reply.status_code == status
    assert words in reply.json()["error"]["message"]
    assert not file.path.exists()


def test_other_origins_and_clients_without_the_key_are_refused(serving, file):
    file.path.parent.mkdir()
    with serving(feedback=file) as served:
        id = ask(served, WHO)
        assert judge(served, id, headers={"Origin": "http://evil.example"}).status_code == 403
        assert judge(served, id, headers={"Host": "evil.example"}).status_code == 421
    with serving(feedback=file, keys=["a-key-that-is-long"]) as served:
        assert judge(served, "chatcmpl-0").status_code == 401
    assert not file.path.exists()


def test_a_server_keeps_nothing_unless_it_was_asked_to(serving):
    with serving() as served:
        reply = judge(served, ask(served, WHO))
        assert (reply.status_code, "--feedback" in reply.json()["error"]["message"]) == (404, True)
        own = httpx2.get(f"{served.url}/v1/models").json()["data"][0]["evoseek"]
        assert "feedback" not in own


def test_clients_are_told_where_verdicts_are_kept(judged):
    own = httpx2.get(f"{judged.url}/v1/models").json()["data"][0]["evoseek"]
    assert own["feedback"] == "project/feedback.jsonl"


def test_a_full_file_is_said_and_the_answers_stay_judgeable(judged, file, monkeypatch):
    monkeypatch.setattr(module, "MAX_LINES", 1)
    first, second = ask(judged, WHO), ask(judged, WHO)
    assert judge(judged, first).status_code == 200
    reply = judge(judged, second)
    assert (reply.status_code, "evoseek feedback --delete" in reply.json()["error"]["message"]) == (507, True)
    file.delete([first])
    assert judge(judged, second).status_code == 200


def test_verdicts_at_the_same_time_are_all_kept(judged, file):
    ids = [ask(judged, WHO) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert {reply.status_code for reply in pool.map(lambda id: judge(judged, id), ids)} == {200}
    assert sorted(kept.id for kept in file.read()) == sorted(ids)


def test_only_the_last_answers_can_be_judged(judged, monkeypatch):
    monkeypatch.setattr("evoseek.serve.agent._JUDGEABLE", 2)
    ids = [ask(judged, WHO) for _ in range(3)]
    assert [judge(judged, id).status_code for id in ids] == [404, 200, 200]
