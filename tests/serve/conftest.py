"""An agent server on the loopback, in a thread, over a scripted policy and a real index."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.agent.answer import Answerer
from evoseek.agent.support import by_words
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.rollout.tools import SearchTool
from evoseek.search.lexical import LexicalIndex
from evoseek.serve.agent import AgentServer, AgentServerLimits
from evoseek.serve.connection import StoppableServer
from evoseek.serve.keys import Key
from evoseek.serve.readers import AnswerSource
from evoseek.types import Passage

PASSAGES = [
    Passage("kalo#0", "kalo", "Kalo", "Kalo lies by the sea.", 0, 21, None, "kalo.md", None, "Place"),
    Passage("kalo#1", "kalo", "Kalo", "The mayor of Kalo is Meri Tolu.", 22, 53, None, "kalo.md", 2, "People"),
    Passage("kalo#2", "kalo", "Kalo", "It rains often.", 54, 69, None, "kalo.md", None, "Weather"),
    Passage("vesu#0", "vesu", "Vesu", "Vesu is <img src=x onerror=alert(1)> old.", 0, 41, None, "vesu.md"),
]
LOGPROB = -0.0726  # of every token: 0.93


class Sampler(ScriptedSampler):
    """Searches for the question, then answers: Meri Tolu, or what stands after `say` in the question. A question with
    `hang` hangs, one with `wait` waits until `gate` is set, one with `break` breaks."""

    def __init__(self, tokenizer):
        super().__init__(self.turn, tokenizer, logprob=LOGPROB)
        self.gate = threading.Event()
        self.prompts = []
        self.hanging = []

    async def sample(self, request):
        asked = self._tokenizer.decode(list(request.token_ids)).rpartition("solve :")[2]
        if "hang" in asked:
            self.hanging.append(request.trajectory_id)
            await asyncio.Event().wait()
        while "wait" in asked and not self.gate.is_set():
            await asyncio.sleep(0.005)
        return await super().sample(request)

    def turn(self, request):
        text = self._tokenizer.decode(list(request.token_ids))
        asked = text.rpartition("solve :")[2].split("<")[0].strip()
        if request.turn == 0:
            self.prompts.append(text)
            if "break" in asked:
                raise ZeroDivisionError("a bug")
            return f"<think> hm </think> <search> {asked.replace('wait', '')} </search>"
        return f"<answer> {asked.partition('say ')[2] or 'Meri Tolu'} </answer>"


class Served:
    """The address of a server, its sampler, and the server itself; `stop()` tells it to stop."""

    def __init__(self, url, sampler, server, http):
        self.url, self.sampler, self.server, self._http = url, sampler, server, http

    def stop(self):
        self._http.should_exit = True


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return LexicalIndex.build(tmp_path_factory.mktemp("agent") / "index", PASSAGES)


@pytest.fixture(scope="session")
def serving(made, library):
    """`with serving(running=2, keys=[...]) as served`. Without `tells`, a stopped server just closes connections."""

    @contextmanager
    def serving(
        *, limits=None, refuses=True, history=True, port=0, tells=True, engine=None, library=library, **options
    ):
        tokenizer = made("qwen")
        sampler, prompts = Sampler(tokenizer), load_prompts("tiny")
        agent = SimpleNamespace(decode=tokenizer.decode)

        def answerer_for(searched):
            is_whole = searched is (engine or library)
            tool = SearchTool(library if is_whole else searched, template=prompts["observation"])
            roller = Roller(
                SolverEnv([tool], prompts), TagRenderer(tokenizer), sampler, Limits(max_total_tokens=1_000), 0.0
            )
            return Answerer("runs/a-policy", roller, by_words, refuses, history, agent)

        source = AnswerSource(answerer_for, engine or library)
        options["keys"] = [key if isinstance(key, Key) else Key.of(key) for key in options.get("keys", ())]
        server = AgentServer(source, limits=limits or AgentServerLimits(drain_s=1), **options)
        with socket.create_server(("127.0.0.1", port), backlog=256) as bound:
            http = server.stoppable() if tells else StoppableServer(server.app, drain_s=1)
            thread = threading.Thread(target=http.run, kwargs={"sockets": [bound]})
            thread.start()
            try:
                yield Served(f"http://127.0.0.1:{bound.getsockname()[1]}", sampler, server, http)
            finally:
                sampler.gate.set()
                http.should_exit = True
                thread.join()

    return serving


@pytest.fixture(scope="module")
def served(serving):
    with serving() as served:
        yield served
