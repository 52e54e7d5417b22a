"""The page of a review, as a browser sees it."""

import re
import socket
import threading
from contextlib import contextmanager

import httpx2
import pytest

from evoseek.cli.review import BACK, KEYS, QUIT
from evoseek.curation.reviewing import Review
from evoseek.questions.questions import load_questions
from evoseek.serve.review import ReviewServer
from evoseek.types import Question

QUESTIONS = [Question(f"q{number}", f"who is {number}?", ("Meri",)) for number in range(3)]


@contextmanager
def reviewing(tmp_path, library=None, questions=QUESTIONS):
    """The address of a review's page, the review, and the thread of its server."""
    log, tests = tmp_path / "review.jsonl", tmp_path / "reviewed.jsonl"
    review = Review.open(questions, log, tests, library, count=30, seed=0)
    server = ReviewServer(review)
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.http.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}{server.path}", review, thread
        finally:
            server.http.should_exit = True
            thread.join()


@pytest.fixture
def page(tmp_path, library):
    with reviewing(tmp_path, library) as (url, review, _):
        yield url, review


def test_the_page_and_its_files_are_below_the_token_alone(page):
    url, _ = page
    root = url.rsplit("/", 2)[0]
    assert len(url) - len(root) > 20
    for name in ("", "review.js", "review.css", "chat.css", "state", "0"):
        reply = httpx2.get(url + name)
        assert reply.status_code == 200, name
        assert httpx2.get(f"{root}/{name}").status_code == 404
        old = httpx2.request("POST" if name == "0" else "GET", f"{root}/{'x' * 22}/{name}")
        assert (old.status_code, "prints now" in old.json()["error"]["message"]) == (404, True)
    assert httpx2.get(url).headers["content-security-policy"].startswith("default-src 'none'")


def test_the_page_has_the_keys_of_the_terminal(page):
    html, script = (httpx2.get(page[0] + name).text for name in ("", "review.js"))
    assert set(re.findall(r"<kbd>(\w)</kbd>", html)) == {*KEYS, BACK[0], QUIT[0]}
    assert f'key === "{QUIT[0]}") finish()' in script
    assert "higher --count" in script  # as the terminal says, once all are judged


def test_verdicts_are_kept_and_the_state_has_the_share(page, tmp_path):
    url, review = page
    shown = httpx2.get(url + "0").json()
    assert (shown["question"], shown["answers"], shown["verdict"]) == (review.questions[0].text, ["Meri"], None)
    state = httpx2.post(url + "0", json={"verdict": "right"}).json()
    assert state["verdicts"] == ["right", None, None]
    assert state["share"].startswith("True: 1.000 [")
    assert httpx2.get(url + "0").json()["verdict"] == "right"
    assert [question.id for question in load_questions(tmp_path / "reviewed.jsonl")] == [review.questions[0].id]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("0", {"verdict": "perhaps"}, 400), ("0", {}, 400), ("0", [], 400), ("3", {"verdict": "right"}, 400)],
)
def test_what_is_no_verdict_is_refused(page, path, body, status):
    url, review = page
    reply = httpx2.post(url + path, json=body)
    assert (reply.status_code, "error" in reply.json()) == (status, True)
    assert review.verdicts == {}


def test_other_pages_and_long_bodies_are_refused(page):
    url, review = page
    assert httpx2.post(url + "0", json={"verdict": "right"}, headers={"Origin": "http://evil"}).status_code == 403
    assert httpx2.get(url, headers={"Host": "evil.example"}).status_code == 421
    assert httpx2.post(url + "0", content=b"x" * 2_000).status_code == 413
    assert httpx2.get(url + "3").status_code == 404
    assert review.verdicts == {}


def test_the_page_ends_the_server(tmp_path):
    with reviewing(tmp_path) as (url, _, thread):
        assert httpx2.post(url + "end", json={}).status_code == 200
        thread.join(10)
        assert not thread.is_alive()
