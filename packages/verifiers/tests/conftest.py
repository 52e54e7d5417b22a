"""A scripted model behind an endpoint, its questions with an index, and verifiers' own way to run them.

`make test-verifiers` sets the environment up: verifiers pins other versions of packages than evoseek's own tests have.
"""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
import verifiers.v1 as vf
from tests.doubles.loopback import Loopback
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from evoseek.questions.questions import save_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question
from evoseek.world.server import Response

CAPITALS = {
    "Austria": "Vienna",
    "Brazil": "Brasilia",
    "Canada": "Ottawa",
    "Denmark": "Copenhagen",
    "Egypt": "Cairo",
    "France": "Paris",
    "Greece": "Athens",
}


@dataclass
class Scripted(Loopback):
    """Replies by the country that is asked for and the number of turns before, the last reply again and again. A number
    is a status without a reply, None no reply at all, a pair a reply after so many seconds, `cut` the reply that came
    to its limit of tokens.

    With a `tokenizer` it speaks vLLM's `/inference/v1/generate`, too. `bodies` are the requests, in their order.
    """

    replies: dict = field(default_factory=dict)
    tokenizer: object = None
    cut: str = "<search> on and on"
    bodies: list = field(default_factory=list)

    def __post_init__(self):
        super().__init__(max_body=4 * 2**20)

    def refused(self, error):
        raise error

    async def answer(self, connection, request):
        if request.method == "GET":
            await connection.send(Response.of_json({"object": "list", "data": [{"id": "scripted"}]}))
            return True
        body = json.loads(request.body)
        self.bodies.append(body)
        is_chat = request.target == "/v1/chat/completions"
        texts = [m["content"] for m in body["messages"]] if is_chat else [self.tokenizer.decode(body["token_ids"])]
        turns = (
            sum(m["role"] == "assistant" for m in body["messages"]) if is_chat else texts[0].count("assistant\n") - 1
        )
        country = next(name for name in self.replies if not name or any(f"of {name}?" in text for text in texts))
        replies = self.replies[country]
        reply = replies[min(turns, len(replies) - 1)]
        if reply is None:
            await connection.left()
            return False
        if isinstance(reply, tuple):
            await asyncio.sleep(reply[0])
            reply = reply[1]
        if isinstance(reply, int):
            await connection.send(Response.of_json({"error": {"message": "no model here"}}, reply))
        else:
            await connection.send(Response.of_json(self._chat(reply) if is_chat else self._tokens(reply)))
        return True

    def _finish(self, reply):
        return "length" if reply == self.cut else "stop"

    def _chat(self, reply):
        message = {"role": "assistant", "content": reply}
        choice = {"index": 0, "message": message, "finish_reason": self._finish(reply)}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "scripted"}
        return {**body, "choices": [choice], "usage": usage}

    def _tokens(self, reply):
        ids = [*self.tokenizer.encode(reply), self.tokenizer.eos_token_id]
        logprobs = {"content": [{"token": f"token_id:{token}", "logprob": -0.5} for token in ids]}
        return {"choices": [{"token_ids": ids, "logprobs": logprobs, "finish_reason": self._finish(reply)}]}


@pytest.fixture
def model():
    scripted = Scripted()
    with scripted.in_thread():
        yield scripted


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Where the questions and their index are."""
    root = tmp_path_factory.mktemp("world")
    texts = {country: f"The capital of {country} is {capital}." for country, capital in CAPITALS.items()}
    LexicalIndex.build(root / "index", [Passage(f"{name}#0", name, name, text) for name, text in texts.items()])
    questions = [
        Question(name, f"What is the capital of {name}?", (city,), {"hops": 1}) for name, city in CAPITALS.items()
    ]
    save_questions(root / "questions.jsonl", questions)
    return root


@pytest.fixture
def given(world):
    """The arguments of the environment that name them."""
    return {"questions": str(world / "questions.jsonl"), "index": str(world / "index")}


@pytest.fixture
def run(model, given):
    """Every question that the model has replies for, by verifiers: the traces by country. `agent` and `taskset` are
    arguments of the environment."""

    def run(replies, *, agent=None, client=None, **taskset):
        model.replies = replies
        config = {"taskset": {"id": "evoseek-verifiers", **given, **taskset}, "agent": agent or {}}
        endpoint = client or vf.EvalClientConfig(base_url=f"{model.url}/v1")
        context = vf.ModelContext(model="scripted", client=endpoint, sampling=vf.SamplingConfig())
        return asyncio.run(episodes(load_environment(resolve_env_config(config)), context, replies))

    return run


async def episodes(env, context, replies):
    tasks = [task for task in env.taskset if task.data.id in replies]
    async with env.serving():
        done = await asyncio.gather(*(env.run_slot(env.slots(task)[0], context) for task in tasks))
    return {episode.task.data.id: episode.traces[0] for episode in done}
