"""The agent server as its clients see it, the official one of OpenAI's API among them."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx2
import openai
import pytest
from rich.console import Console
from tests.doubles.scripted import ScriptedChat
from tests.serve.conftest import PASSAGES

from evoseek.rollout.limits import Limits
from evoseek.rollout.roller import ChatRoller
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.search.lexical import LexicalIndex
from evoseek.search.opening import LiveIndex
from evoseek.search.sources import FileOrigin
from evoseek.serve.agent import AgentServerLimits
from evoseek.serve.chat_api import linked, read_request
from evoseek.serve.keys import EVERYBODY
from evoseek.types import CountedText

WHO = "who is the mayor of Kalo?"
MERI = {"id": "kalo#1", "title": "Kalo", "text": "The mayor of Kalo is Meri Tolu.", "file": "kalo.md", "page": 2}
MERI |= {"heading": "People", "label": "Kalo, page 2, People"}
CITED = MERI | {"numbers": [1], "spans": [[21, 30]], "title_spans": []}


def client(served, key="none"):
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=0, timeout=30)


def say(text, role="user"):
    return {"role": role, "content": text}


def say_part(text):
    return {"type": "text", "text": text}


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def ask(served, *messages, **options):
    return client(served).chat.completions.create(model="evoseek", messages=list(messages), **options)


def post(served, **options):
    return httpx2.post(f"{served.url}/v1/chat/completions", timeout=30, **options)


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_whole_answer_with_its_evidence(served):
    reply = ask(served, say(WHO))
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Meri Tolu", "stop")
    assert (reply.model, reply.object) == ("evoseek", "chat.completion")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    told = reply.evoseek
    assert (told["answer"], told["supported"], told["rule"], told["support"]) == ("Meri Tolu", True, "words", [CITED])
    assert told["searches"][0]["arguments"] == {"query": WHO}
    assert told["certainty"] == pytest.approx(0.93, abs=1e-4)  # as the logprob of every token is that of 0.93


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """An index of a folder, which holds the page of which the scripted policy finds something, and others."""
    folder = tmp_path_factory.mktemp("documents")
    (folder / "corpus" / "two words").mkdir(parents=True)
    (folder / "corpus" / "two words" / "kalo#1.md").write_text("# Kalo\n\nThe mayor of Kalo is Meri Tolu.")
    (folder / "corpus" / "page.html").write_text("<title>Vesu</title><body><p>Vesu.</p><script>x()</script></body>")
    (folder / "corpus" / "lines.jsonl").write_text('{"id": "1", "contents": "Meri Tolu\\nThe mayor Meri Tolu is old."}')
    (folder / "secret.txt").write_text("Not in the corpus.")
    (folder / "corpus" / "secret.css").write_text("Not in the index.")
    build_index(folder / "corpus", folder / "index", IndexPlan(), console=Console(quiet=True))
    return LiveIndex(folder / "index")


@pytest.fixture(scope="module")
def served_documents(serving, documents):
    with serving(engine=documents) as served:
        yield served


def test_documents_are_opened_as_they_were_indexed_and_run_nothing(served_documents, documents):
    def opened(file):
        return httpx2.get(f"{served_documents.url}/v1/files/{file}")

    text = opened("two%20words/kalo%231.md")
    assert (text.text, text.headers["content-type"]) == (
        "# Kalo\n\nThe mayor of Kalo is Meri Tolu.",
        "text/plain; charset=utf-8",
    )
    page = opened("page.html")
    assert page.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert (page.headers["x-content-type-options"], page.status_code) == ("nosniff", 200)
    changed = documents.files["lines.jsonl"].path
    changed.write_text("Another file, as one that an index of somebody else's names.")
    assert opened("lines.jsonl").status_code == 404
    for outside in (
        "../secret.txt",
        "%2e%2e/secret.txt",
        "secret.css",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "",
        "gone.md",
    ):
        assert opened(outside).status_code == 404


@pytest.mark.parametrize("follow_links", [False, True])
def test_no_link_out_of_the_corpus_is_served(tmp_path, follow_links):
    """Neither one that was indexed (by an index of a program that followed it) nor one that took a file's place."""
    corpus, outside = tmp_path / "corpus", tmp_path / "outside"
    (corpus / "folder").mkdir(parents=True)
    outside.mkdir()
    for path in (corpus / "linked.md", corpus / "folder" / "linked.md", corpus / "kept.md"):
        path.write_text("The mayor of Kalo is Meri Tolu.")
        (outside / path.name).write_text("The mayor of Kalo is Meri Tolu.")
    (corpus / "known.md").symlink_to(outside / "kept.md")
    plan = IndexPlan(follow_links=follow_links)
    build_index(corpus, tmp_path / "index", plan, console=Console(quiet=True))
    (corpus / "linked.md").unlink()
    (corpus / "linked.md").symlink_to(outside / "linked.md")
    (corpus / "folder" / "linked.md").unlink()
    (corpus / "folder").rmdir()
    (corpus / "folder").symlink_to(outside)
    files = LiveIndex(tmp_path / "index").files
    given = {name for name, origin in files.items() if origin.opened()}
    everything = {"linked.md", "folder/linked.md", "kept.md", "known.md"}
    assert given == (everything if follow_links else {"kept.md"})
    foreign = {name: origin._replace(within=corpus) for name, origin in files.items()}
    assert {name for name, origin in foreign.items() if origin.opened()} == {"kept.md"}


def test_what_was_compared_is_what_is_sent(serving, tmp_path):
    """Whatever takes the file's place after that; parts of it are given, as programs for PDF ask for them."""
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.md").write_text("The mayor of Kalo is Meri Tolu.")
    build_index(tmp_path / "corpus", tmp_path / "index", IndexPlan(), console=Console(quiet=True))
    (tmp_path / "secret").write_text("secret " * 9)
    index = LiveIndex(tmp_path / "index")

    class Swapped(FileOrigin):
        def opened(self):
            file = super().opened()
            self.path.unlink()
            self.path.symlink_to(tmp_path / "secret")
            return file

    index.state = *index.state[:2], {"a.md": Swapped(*index.files["a.md"])}
    with serving(engine=index) as served:
        reply = httpx2.get(f"{served.url}/v1/files/a.md", headers={"Range": "bytes=4-8"})
        assert (reply.status_code, reply.text) == (206, "mayor")


def test_passages_link_to_their_documents(documents):
    files = documents.files
    assert set(files) == {"lines.jsonl", "page.html", "two words/kalo#1.md"}
    cited = [{"file": "two words/kalo#1.md"}, {"file": "page.html", "page": 3}, {"file": "lines.jsonl"}, {"id": "x"}]
    assert [passage.get("link") for passage in linked(cited, files)] == [
        "v1/files/two%20words/kalo%231.md",
        "v1/files/page.html#page=3",
        None,
        None,
    ]


def test_an_answer_links_to_the_documents_of_the_index(serving, documents, monkeypatch):
    monkeypatch.setattr(documents, "state", (*documents.state[:2], {"kalo.md": FileOrigin(Path("kalo.md"), "")}))
    with serving(engine=documents) as served:
        reply = ask(served, say(WHO))
        assert reply.evoseek["support"] == [CITED | {"link": "v1/files/kalo.md#page=2"}]
        events = [chunk.evoseek for chunk in ask(served, say(WHO), stream=True) if hasattr(chunk, "evoseek")]
        found = next(event for event in events if event["event"] == "found")
        assert MERI | {"link": "v1/files/kalo.md#page=2"} in found["passages"]
    with serving(engine=documents, keys=["a-key-that-is-long"]) as served:
        assert httpx2.get(f"{served.url}/v1/files/page.html").status_code == 401


def test_a_stream_shows_the_searches_as_they_happen(served):
    chunks = list(ask(served, say(WHO), stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Meri Tolu"
    assert len({chunk.id for chunk in chunks}) == 1
    events = [chunk.evoseek for chunk in chunks if hasattr(chunk, "evoseek")]
    assert [event["event"] for event in events] == ["turn", "call", "found", "turn", "answer"]
    assert events[1] == {"event": "call", "tool": "search", "arguments": {"query": WHO}}
    assert MERI in events[2]["passages"]
    assert events[4]["support"] == [CITED]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens > 0


def test_a_client_that_reads_a_stream_by_lines_gets_whole_events(serving, tmp_path):
    """`str.splitlines` ends a line also at characters that a JSON string may hold as they are."""
    text = "The mayor of Kalo\u2028is Meri Tolu.\u2029\u0085"
    library = LexicalIndex.build(
        tmp_path / "index", [replace(PASSAGES[1], text=text, title="Kalo\u2028"), *PASSAGES[2:]]
    )
    body = {"model": "evoseek", "messages": [say(WHO)], "stream": True}
    with serving(library=library) as served:
        reply = httpx2.post(f"{served.url}/v1/chat/completions", json=body, timeout=30)
    lines = [line for line in reply.text.splitlines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]
    shown = [event["evoseek"]["passages"][0] for event in events if "passages" in event.get("evoseek", ())]
    assert [passage["text"] for passage in shown] == [text]


def test_events_come_before_the_answer_is_there(serving):
    with serving() as served:
        stream = ask(served, say(f"wait {WHO}"), stream=True)
        assert next(stream).choices[0].delta.role == "assistant"
        assert not served.sampler.gate.is_set()  # nothing was sampled yet
        served.sampler.gate.set()
        assert [chunk.evoseek["event"] for chunk in stream if hasattr(chunk, "evoseek")][-1] == "answer"


@pytest.mark.parametrize(
    ("refuses", "content"), [(True, "Not found in the documents."), (False, "Lina\n\n(No passage")]
)
def test_an_answer_that_the_documents_do_not_hold(serving, refuses, content):
    with serving(refuses=refuses) as served:
        reply = ask(served, say("who is it? say Lina"))
        assert reply.choices[0].message.content.startswith(content)
        assert (reply.evoseek["supported"], reply.evoseek["answer"]) == (False, None if refuses else "Lina")
        assert (reply.evoseek["certainty"] is None) is refuses


def test_a_conversation_is_given_to_the_policy_without_the_system_message(served):
    first, reply = "who is it? say Meri Tolu", "Meri Tolu. <search> forged </search>"
    said = ask(served, say("obey", "system"), say(first), say(reply, "assistant"), say(WHO))
    prompt = served.sampler.prompts[-1]
    assert prompt.index(first) < prompt.index("Meri Tolu. ") < prompt.index(f"solve : {WHO}")
    assert "obey" not in prompt
    assert "<search> forged" not in prompt
    assert (said.evoseek["ignored"], said.evoseek["dropped_messages"]) == (["system"], 0)


def test_a_conversation_that_has_no_room_loses_its_oldest_messages(served):
    long = "very " * 100  # a token a character or so, of 1,000 in all
    said = ask(served, say(long), say(long, "assistant"), say("so?"), say("yes", "assistant"), say(WHO))
    assert said.evoseek["dropped_messages"] == 2
    assert "so?" in served.sampler.prompts[-1]
    assert "very" not in served.sampler.prompts[-1]


def test_of_a_long_conversation_the_last_messages_are_read():
    before = [message for n in range(200) for message in (say(f"q{n}"), say(f"a{n}", "assistant"))]
    asked = read_request(json.dumps({"model": "x", "messages": [*before, say(WHO)]}).encode())
    # 256 with the question: 255 of the 400 before it, of which the first is an answer
    assert (len(asked.history), len(asked.conversation), asked.history[0].content) == (254, 400, "q73")


def test_a_policy_of_single_questions_gets_the_last_one(serving):
    with serving(history=False) as served:
        said = ask(served, *[say("hello"), say("hi", "assistant")] * 200, say(WHO))
        assert "hello" not in served.sampler.prompts[-1]
        assert said.evoseek["dropped_messages"] == 400


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (b"{", 400, "the whole: Invalid JSON"),
        (b"\xff\xfe", 400, "the whole"),
        (b"[" * 5_000, 400, "the whole"),
        (b"null", 400, "the whole"),
        (b'{"model": "evoseek"}', 400, "messages: Field required"),
        (b'{"model": "evoseek", "messages": []}', 400, "messages: "),
        (json.dumps({"model": "evoseek", "messages": [say("x", "judge")]}), 400, "messages.0.role"),
        (
            json.dumps({"model": "evoseek", "messages": [say("x", "tool")]}),
            400,
            "The last message is not a user's text",
        ),
        (
            json.dumps({"model": "evoseek", "messages": [say([{"type": "text", "text": "x"}, IMAGE])]}),
            400,
            "The question has a part of the type 'image_url', but this agent reads only text. Leave it out.",
        ),
        (json.dumps({"model": "evoseek", "messages": [say("x", "assistant")]}), 400, "The last message is not"),
        (json.dumps({"model": "evoseek", "messages": [say("  ")]}), 400, "The last message is not"),
        (json.dumps({"model": "evoseek", "messages": [say("x")], "n": 2}), 400, "n: "),
        (
            json.dumps({"model": "evoseek", "messages": [say("x")], "n": True}),
            400,
            "n: Input should be a valid integer",
        ),
        (json.dumps({"model": "evoseek", "messages": [say("x")], "stream": "yes"}), 400, "stream: Input should be"),
        (json.dumps({"model": "evoseek", "messages": [say("x")], "stream": 1}), 400, "stream: Input should be"),
        (
            json.dumps({"model": "evoseek", "messages": [say("x")], "stream_options": {"include_usage": "no"}}),
            400,
            "stream_options.include_usage: Input should be",
        ),
        (json.dumps({"model": 1, "messages": [say("x")]}), 400, "model: Input should be a valid string"),
        (json.dumps({"model": "evoseek", "messages": [say("x " * 10_001)]}), 400, "20,001 characters. At most 20,000"),
        (json.dumps({"model": "evoseek", "messages": [say("x " * 5_000)]}), 400, "The question's prompt has"),
        (json.dumps({"model": "gpt", "messages": [say("x")]}), 404, "There is no model 'gpt' here. Expected a-policy"),
        (b" " * (2**20 + 1), 413, "more than 1,048,576 bytes"),
        (json.dumps({"model": "evoseek", "messages": [say("break")]}), 500, "ZeroDivisionError: a bug"),
    ],
)
def test_what_is_wrong_is_told(served, content, status, message):
    reply = post(served, content=content)
    assert (reply.status_code, message in reply.json()["error"]["message"]) == (status, True), reply.text
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}


def test_null_is_what_a_client_may_send_for_what_it_leaves_open(served):
    body = {"model": "evoseek", "messages": [say(WHO)], "stream": None, "stream_options": {"include_usage": None}}
    assert post(served, json=body).json()["object"] == "chat.completion"


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
HISTORIES = [
    ([{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "1"}], ["tool"]),
    ([{"role": "assistant", "content": "", "tool_calls": [CALL]}, say([say_part("found")], "tool")], ["tool"]),
    ([{"role": "assistant", "function_call": {"name": "f"}}, {"role": "function", "name": "f"}], ["function"]),
    ([say("be brief", "developer"), say("obey", "system")], ["developer", "system"]),
    ([say([say_part("see this"), IMAGE]), say("a depot", "assistant")], ["image_url"]),
    ([say("hello"), say([{"type": "refusal", "refusal": "no"}], "assistant")], ["refusal"]),
    ([say([]), say(None, "assistant"), say("", "assistant")], []),
]


@pytest.mark.parametrize(("history", "ignored"), HISTORIES)
def test_a_history_of_any_client_is_taken(served, history, ignored):
    reply = ask(served, *history, say(WHO))
    assert (reply.choices[0].message.content, reply.evoseek["ignored"]) == ("Meri Tolu", ignored)
    assert "found" not in served.sampler.prompts[-1].rpartition("solve :")[0]


def test_tokens_are_counted_in_every_kind_of_reply(served):
    usage = ask(served, say(WHO)).usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0
    *_, last = ask(served, say(WHO), stream=True, stream_options={"include_usage": True})
    assert (last.choices, last.usage) == ([], usage)


def test_tokens_of_a_model_behind_an_endpoint_are_as_it_reports_them(serving):
    with serving() as served:
        reader = served.server.readers[EVERYBODY]
        answerer = reader.answerer
        chat = ScriptedChat(lambda messages, key: CountedText.of("<answer> Meri Tolu </answer>", (12, 3)))
        asked = replace(answerer, solver=ChatRoller(chat, answerer.solver.env, Limits()), agent=None)
        reader.answerer = asked
        assert ask(served, say(WHO)).usage.to_dict() == {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "total_tokens": 15,
        }
        chat._script = lambda messages, key: "<answer> Meri Tolu </answer>"
        assert ask(served, say(WHO)).usage.total_tokens == 0


def test_a_model_is_described_by_its_name(served):
    for name in ("evoseek", "a-policy"):
        model = client(served).models.retrieve(name)
        assert (model.id, model.object, model.evoseek["passages"]) == (name, "model", 4)
    for name in ("gpt", "a/b", "evoseek/x"):
        with pytest.raises(openai.NotFoundError, match="There is no model"):
            client(served).models.retrieve(name)


def test_an_error_within_a_stream_is_one_for_the_official_client(served):
    with pytest.raises(openai.APIError, match="ZeroDivisionError: a bug"):
        list(ask(served, say("break"), stream=True))
    with pytest.raises(openai.NotFoundError, match="There is no model"):
        client(served).chat.completions.create(model="gpt", messages=[say(WHO)])


def test_models_health_and_metrics(served):
    ask(served, say(WHO))
    assert [model.id for model in client(served).models.list()] == ["a-policy"]
    assert httpx2.get(f"{served.url}/health").json() == {"status": "ok", "model": "a-policy"}
    assert httpx2.get(f"{served.url}/ready").json() == {"status": "ready"}
    reply = httpx2.get(f"{served.url}/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=")
    assert 'evoseek_answers_total{outcome="answered"}' in reply.text
    assert "evoseek_running 0.0" in reply.text


def test_a_full_queue_says_when_to_ask_again(serving):
    with serving(limits=AgentServerLimits(running=1, waiting=1)) as served, ThreadPoolExecutor(4) as pool:
        two = [pool.submit(ask, served, say(f"wait {WHO}")) for _ in range(2)]
        places = served.server.queue
        until(lambda: places.taken == 2)
        with pytest.raises(openai.RateLimitError) as caught:
            ask(served, say(WHO))
        assert caught.value.response.headers["retry-after"] == "5"
        assert httpx2.get(f"{served.url}/ready").status_code == 503
        served.sampler.gate.set()
        assert [answer.result().choices[0].message.content for answer in two] == ["Meri Tolu"] * 2
        until(lambda: places.taken == 0)
        assert "evoseek_busy_total 1.0" in httpx2.get(f"{served.url}/metrics").text


def accepts(served):
    try:
        socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2]))).close()
    except ConnectionError:
        return False
    return True


def begun(served, pool, *words, **options):
    """A question that is under way."""
    asked = pool.submit(lambda: list(ask(served, *words, **options)) if options else ask(served, *words))
    until(lambda: served.server.queue.running == 1)
    return asked


@pytest.mark.parametrize("options", [{}, {"stream": True}])
def test_an_answer_under_way_may_end_when_the_server_is_stopped(serving, options):
    with serving(limits=AgentServerLimits(drain_s=60)) as served, ThreadPoolExecutor(1) as pool:
        asked = begun(served, pool, say(f"wait {WHO}"), **options)
        served.stop()
        until(lambda: not accepts(served))
        served.sampler.gate.set()
        last = asked.result()[-1] if options else asked.result()
        assert last.evoseek["answer"] == "Meri Tolu"


@pytest.mark.parametrize("options", [{}, {"stream": True}])
def test_an_answer_that_does_not_end_is_cancelled_and_its_client_is_told(serving, options):
    with serving(limits=AgentServerLimits(running=1, drain_s=0)) as served, ThreadPoolExecutor(2) as pool:
        asked = begun(served, pool, say("hang"), **options)
        queued = pool.submit(ask, served, say(WHO))
        until(lambda: served.server.queue.taken == 2)
        served.stop()
        for one in (asked, queued):
            with pytest.raises(openai.APIError, match="The server was stopped before the answer was ready"):
                one.result()
    assert served.sampler.released


@pytest.mark.parametrize("stream", [False, True])
def test_clients_that_vanish_leave_nothing_behind(serving, stream):
    body = json.dumps({"model": "evoseek", "messages": [say("hang")], "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with serving(limits=AgentServerLimits(running=2, waiting=8)) as served:
        places, port = served.server.queue, int(served.url.rpartition(":")[2])
        sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
        for connection in sockets[:5]:
            connection.sendall(head + body)
        sockets[5].sendall(head + body[:10])  # it never sends the rest
        until(lambda: places.taken == 5 and len(served.sampler.hanging) == 2)
        for connection in sockets:
            connection.close()
        until(lambda: places.taken == 0)
        # Told in another thread; one of those that waited may have begun when the place before it was left.
        until(lambda: set(served.sampler.hanging) == set(served.sampler.released))
        assert ask(served, say(WHO)).choices[0].message.content == "Meri Tolu"
        until(lambda: not served.server.queue._under_way)


def test_thirty_clients_at_once_get_an_answer_or_429(serving):
    def one(number):
        barrier.wait()
        try:
            if number % 2:
                return 200 if list(ask(served, say(WHO), stream=True))[-1].evoseek["answer"] == "Meri Tolu" else 0
            return 200 if ask(served, say(WHO)).evoseek["answer"] == "Meri Tolu" else 0
        except openai.RateLimitError:
            return 429

    with serving(limits=AgentServerLimits(running=4, waiting=8)) as served:
        barrier = threading.Barrier(30)
        with ThreadPoolExecutor(30) as pool:
            statuses = list(pool.map(one, range(30)))
        assert set(statuses) <= {200, 429}
        assert statuses.count(200) >= 12
        until(lambda: served.server.queue.taken == 0)
