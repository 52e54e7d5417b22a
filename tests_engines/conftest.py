"""A server of vLLM on this machine's CPU, something between it and the client, and a few questions.

`make test-engines` sets the environment up. ENGINES_VENV is where vLLM is installed, and where the models are kept.
ENGINES_MODEL is the policy: one that was warm-started searches, while SmolLM2 as it is published mostly writes turns
that cannot be used, and is told so.
"""

import json
import os
import signal
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from tests.doubles.loopback import Loopback

from evoseek.models.load import load_policy, save_policy
from evoseek.questions.questions import save_questions
from evoseek.samplers.vllm.process import HOST, Model, commands, free_ports, launch
from evoseek.samplers.vllm.sampler import VLLMSampler, save_untied
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question
from evoseek.world.server import Response

VENV = Path(os.environ.get("ENGINES_VENV", ".venv-engines")).absolute()
MAX_LENGTH = 384
CAPITALS = {
    "Austria": "Vienna",
    "Brazil": "Brasilia",
    "Canada": "Ottawa",
    "Denmark": "Copenhagen",
    "Egypt": "Cairo",
    "France": "Paris",
    "Greece": "Athens",
    "Hungary": "Budapest",
    "Italy": "Rome",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Mexico": "Mexico City",
    "Nepal": "Kathmandu",
    "Peru": "Lima",
    "Spain": "Madrid",
    "Turkey": "Ankara",
}
FORMS = ("What is the capital of {}?", "Which city is {}'s capital?", "Name the capital of {}.", "{}: its capital?")


class Between(Loopback):
    """Passes requests on to a server, and keeps the body and the reply of each turn. After `spared` more of them turns
    meet a `fault`: "error" (status 500), "hang" (no reply) or "kill" (the end of the server). Requests to a path of
    `swallowed` are answered with 200 and not passed on."""

    def __init__(self, server):
        super().__init__(max_body=4 * 2**20)
        self._server, self._client = server, httpx2.AsyncClient(timeout=1800, trust_env=False)
        self.turns, self.fault, self.spared, self.swallowed = [], "", 0, set()

    def refused(self, error):
        raise error

    async def answer(self, connection, request):
        body = json.loads(request.body) if request.body else {}
        is_turn = "return_token_ids" in body
        self.spared -= is_turn
        match self.fault if is_turn and self.spared < 0 else "":
            case "error":
                await connection.send(Response.of_json({"error": {"message": "The engine is dead."}}, 500))
            case "hang":
                await connection.left()
                return False
            case "kill":
                self._server.kill()
                return False
            case _ if request.target.partition("?")[0] in self.swallowed:
                await connection.send(Response.of_json({"results": [None]}))
            case _:
                await self._pass(connection, request, body if is_turn else None)
        return True

    async def _pass(self, connection, request, turn):
        kind = {"content-type": "application/json"}
        url = self._server.url + request.target
        reply = await self._client.request(request.method, url, content=request.body, headers=kind)
        if turn is not None and reply.status_code == 200:
            events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
            choices = [event["choices"][0] for event in events]
            ids = [token for choice in choices for token in choice["token_ids"]]
            logprobs = [logprob for choice in choices for logprob in choice["logprobs"]["token_logprobs"]]
            self.turns.append((turn, {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}}))
        said = reply.headers.get("content-type", "text/plain")
        await connection.send(Response(reply.status_code, reply.content, said))


@contextmanager
def between(server):
    """In an event loop of its own: a run has another one."""
    proxy = Between(server)
    with proxy.in_thread():
        yield proxy


@pytest.fixture
def proxy(server):
    with between(server) as made:
        yield made


@pytest.fixture
def doomed(tmp_path):
    """In front of a server of its own."""
    with running(tmp_path / "server") as server, between(server) as made:
        yield made


@dataclass
class Server:
    """A running server; `model` is what the policy is loaded from."""

    url: str
    model: Path

    def kill(self):
        """End it at once, with all of its processes: they are a group, whose leader has the port in its command."""
        port = f"\0--port\0{self.url.rpartition(':')[2]}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words, number = (process / "cmdline").read_bytes(), int(process.name)
                if port in words and b"vllm.process" not in words and os.getpgid(number) == number:
                    os.killpg(number, signal.SIGKILL)


def saved_models():
    """The policy as plain Hugging Face directories: one for the learner, and one for servers, in which the output head
    has weights of its own."""
    name = os.environ.get("ENGINES_MODEL", "smollm2-135m")
    policy, served = (VENV / "models" / f"{Path(name).name}-{use}" for use in ("policy", "served"))
    if not served.is_dir():
        loaded = load_policy(name)
        save_policy(loaded, policy)
        save_untied(loaded, served)
    return policy, served


@contextmanager
def running(logs):
    """A server of its own."""
    policy, served = saved_models()
    own = VLLMSampler.Settings(
        name="vllm",
        program=(str(VENV / "bin" / "vllm"),),
        arguments=("--enforce-eager", "--max-num-seqs", "64"),
    )
    (port,) = free_ports(1)
    os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with ExitStack() as closing:
        launch(commands(own, Model(str(served), MAX_LENGTH, "float32", 8), [port]), logs, closing, 1800.0)
        yield Server(f"http://{HOST}:{port}", policy)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.fixture(scope="session")
def questions():
    """64 of them, each with its passage in the index."""
    return [
        Question(f"{country}-{number}", form.format(country), (capital,))
        for number, form in enumerate(FORMS)
        for country, capital in CAPITALS.items()
    ]


@pytest.fixture(scope="session")
def common(server, questions, tmp_path_factory):
    """Settings of every run: few and short turns."""
    root = tmp_path_factory.mktemp("world")
    texts = {country: f"The capital of {country} is {capital}." for country, capital in CAPITALS.items()}
    LexicalIndex.build(root / "index", [Passage(f"{name}#0", name, name, text) for name, text in texts.items()])
    save_questions(root / "questions.jsonl", questions)
    return {
        "policy.model": server.model,
        "policy.format": "tags",
        "policy.prompts": Path(__file__).parent / "prompts",
        "search.index": root / "index",
        "search.top_k": 1,
        "questions.path": root / "questions.jsonl",
        "questions.per_step": 1,
        "rollout.group_size": 2,
        "credit.name": "raw",
        "rollout.max_turns": 3,
        "rollout.max_tool_calls": 2,
        "rollout.max_tokens_per_turn": 16,
        "rollout.max_total_tokens": MAX_LENGTH,
        "rollout.wait_s": 3000,
        "learner.token_budget": 768,
        "run.pause_s": 0,
    }
