"""The log of what a server was asked, as its operator sees it."""

import json
import os

import httpx2

from evoseek.questions.asked import AskedLog
from evoseek.questions.feedback import FeedbackFile

WHO = "who is the mayor of Kalo?"


def ask(served, question):
    body = {"model": "evoseek", "messages": [{"role": "user", "content": question}]}
    return httpx2.post(f"{served.url}/v1/chat/completions", json=body, timeout=30).json().get("id")


def test_what_was_asked_is_kept_with_its_outcome_and_verdict(serving, tmp_path):
    log, feedback = AskedLog(tmp_path / "asked.jsonl"), FeedbackFile(tmp_path / "feedback.jsonl")
    with serving(asked=log, feedback=feedback) as served:
        id = ask(served, WHO)
        ask(served, "who is it? say Lina")
        ask(served, "break")
        httpx2.post(f"{served.url}/v1/feedback", json={"id": id, "verdict": "wrong"})
        shown = httpx2.get(f"{served.url}/v1/log").json()
        assert httpx2.get(f"{served.url}/log").status_code == 200
    first, refused, failed = log.read()
    assert (first.id, first.question, first.answer, first.citations) == (id, WHO, "Meri Tolu", ("kalo#1",))
    assert (first.outcome, first.searches, first.key) == ("answered", 1, "")
    assert (refused.outcome, refused.answer, refused.citations) == ("unsupported", None, ())
    assert (failed.outcome, failed.question, failed.searches) == ("failed", "break", 0)
    assert (shown["asked"], shown["verdicts"]) == (3, {"wrong": 1})
    assert shown["outcomes"] == {"answered": 1, "unsupported": 1, "failed": 1}
    assert [one["verdict"] for one in shown["questions"]] == [None, None, "wrong"]
    assert os.stat(log.path).st_mode & 0o777 == 0o600


def test_without_texts_there_are_only_numbers(serving, tmp_path):
    log = AskedLog(tmp_path / "asked.jsonl", has_texts=False)
    with serving(asked=log) as served:
        ask(served, WHO)
    (row,) = map(json.loads, log.path.read_text().splitlines())
    assert (row["question"], row["answer"], row["citations"], row["searches"]) == (None, None, [], 1)
    assert "Kalo" not in log.path.read_text()


def test_a_damaged_log_is_told(serving, tmp_path):
    log = AskedLog(tmp_path / "asked.jsonl")
    log.path.write_text("garbage\n{}\n")
    with serving(asked=log) as served:
        reply = httpx2.get(f"{served.url}/v1/log")
    assert (reply.status_code, "asked.jsonl" in reply.json()["error"]["message"]) == (500, True)


def test_a_server_without_a_log_says_so(serving):
    with serving() as served:
        reply = httpx2.get(f"{served.url}/v1/log")
    assert (reply.status_code, "--log" in reply.json()["error"]["message"]) == (404, True)
