"""`evoseek serve agent` with the embedded policy, from its start to its end."""

import os
import signal
import socket
import threading

import httpx2
import openai
import pytest

from evoseek.cli.main import main
from evoseek.cli.serve import example_questions
from evoseek.questions.questions import save_questions
from evoseek.run import Run
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.types import Passage, Question


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    passages = [Passage("a#0", "a", "Kalo", "Kalo 's mayor is Meri ."), Passage("b#0", "b", "Vesu", "A city .")]
    return LexicalIndex.build(tmp_path_factory.mktemp("served") / "index", passages).directory


@pytest.fixture
def signals():
    """The handlers as they were."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_embedded_policy_is_served_until_it_is_told_to_stop(index, capfd, caplog, monkeypatch, signals):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setattr("sys.argv", ["evoseek", "serve", "agent", "tiny", "--index", str(index), "--port", str(port)])
    told = {}

    def use():
        try:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=9)
            told["models"] = [model.id for model in client.models.list()]
            messages = [{"role": "user", "content": "what is Kalo 's mayor ?"}]
            told["answer"] = client.chat.completions.create(model="tiny", messages=messages).evoseek
            os.kill(os.getpid(), signal.SIGHUP)
            changed = Passage("c#0", "c", "Kalo of today", "Kalo 's mayor is Lina .")
            LexicalIndex.build(index, [changed])
            told["health"] = httpx2.get(f"http://127.0.0.1:{port}/health").json()
            told["changed"] = client.chat.completions.create(model="tiny", messages=messages).evoseek
            told["health after"] = httpx2.get(f"http://127.0.0.1:{port}/health").json()
        finally:
            if callable(signal.getsignal(signal.SIGTERM)):  # else the server has ended already, or never began
                os.kill(os.getpid(), signal.SIGTERM)

    user = threading.Timer(0.5, use)
    user.start()
    with pytest.raises(SystemExit) as ended:
        main()
    user.join()
    assert ended.value.code == 0
    assert told["models"] == ["tiny"]
    assert told["answer"]["searches"][0]["found"][0]["title"] == "Kalo"
    assert told["health"] == {"status": "ok", "model": "tiny", "index_is_current": False}
    assert told["changed"]["searches"][0]["found"][0]["title"] == "Kalo of today"
    assert told["health after"]["index_is_current"]
    said = capfd.readouterr().out
    assert "Reloaded: 0 keys, the same checkpoint." in caplog.text
    assert f"chat page http://127.0.0.1:{port}/" in " ".join(said.split())
    assert said.endswith("Ended.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serve", "agent", "tiny", "--host", "0.0.0.0"), "so a key is needed"),
        (("serve", "agent", "tiny", "--key-file", "none"), "The keys in none cannot be read"),
        (("serve", "agent", "tiny", "--index", "none"), "There is no folder none"),
        (("serve", "agent", "tiny", "--feedback"), "kept in a project or a run, but neither was found"),
        (("serve", "agent", "@http://x"), "names no model at the endpoint"),
        (("serve", "agent", "tiny", "--set", "learner.learning_rate=1"), "`evoseek serve agent` does not use it"),
        (("serve", "mcp", "./nothing"), "./nothing"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(words, message, capsys, monkeypatch):
    monkeypatch.delenv("EVOSEEK_KEY", raising=False)
    monkeypatch.setattr("sys.argv", ["evoseek", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("more", "slots"), [((), 3), (("--set", "sampler.slots=2"), 2)])
def test_slots_are_those_that_can_answer_at_once_and_their_memory_is_estimated(index, capfd, monkeypatch, more, slots):
    words = ["evoseek", "serve", "agent", "tiny", "--index", str(index), "--running", "3", *more, "--dry-run"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    lines = capfd.readouterr().out.splitlines()
    assert f"  sampler.slots = {slots}" in lines
    (memory,) = [line for line in lines if line.startswith("Memory: about ")]
    assert "weights 0.00 + keys and values 0.01" in memory  # 3 x 1600 tokens of 512 numbers in float32


def test_the_questions_that_a_run_held_out_are_suggested(tmp_path):
    """Those with an answer, which the documents that are searched give."""
    run = RunDirectory(tmp_path)
    assert example_questions(Run("search-r1")) == example_questions(Run("search-r1", run)) == []
    run.held_out.parent.mkdir()
    hidden = Question("h", "When was Kalo built?", (), {"answerable": False, "hidden": ["a"]})
    save_questions(run.held_out, [hidden, *(Question(str(n), f"Who is {n}?", ("Meri",)) for n in range(5))])
    assert example_questions(Run("search-r1", run)) == ["Who is 0?", "Who is 1?", "Who is 2?"]
