"""Attempts by a scripted chat or sampler, with prompts of a few words and an engine that knows two cities."""

import asyncio
from dataclasses import dataclass, field
from functools import partial

import pytest
from tests.doubles.scripted import ScriptedChat, ScriptedSampler

from evoseek.assembly.agent import Agent
from evoseek.assembly.sources import gather
from evoseek.config.registry import find
from evoseek.errors import ToolError
from evoseek.eval.attempt import BaselineAnswerer
from evoseek.models.load import load_policy
from evoseek.renderers.encoding import plain
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import ChatRoller
from evoseek.search.settings import SearchSettings
from evoseek.types import Passage, Question

QUESTION = Question("q", "who leads the capital of Nida ?", ("Meri",))
LISTED = "{% for p in passages %}{{ p.title }}: {{ p.text }}; {% else %}nothing{% endfor %}"
PROMPTS = {
    "baseline_direct": "direct: {{ question }}",
    "baseline_cot": "cot: {{ question }}",
    "baseline_rag": f"rag: {{{{ question }}}} {LISTED}",
    "baseline_ircot": f"next: {{{{ question }}}} {LISTED} {{{{ thoughts | join(' / ') }}}}",
    "baseline_ircot_answer": f"end: {{{{ question }}}} {LISTED} {{{{ thoughts | join(' / ') }}}}",
    "baseline_search_o1": "chain: {{ question }} {{ max_calls }}",
    "baseline_documents": f"read: {{{{ question }}}} | {{{{ reasoning }}}} | {{{{ query }}}} | {LISTED}",
    "baseline_information": "{{ information or 'no help' }}",
    "baseline_ragent": "agent: {{ question }} {{ max_calls }} {{ most }}",
    "baseline_snippets": "{% for p in passages %}{{ first + loop.index0 }} {{ p.title }}; {% endfor %}",
    "baseline_opened": "{% for n, p in opened %}{{ n }} {{ p.text }}; {% endfor %}",
    "observation": LISTED,
}


def passage(name, text):
    return Passage(f"{name}#0", name, name, text)


NIDA, KALO = passage("Nida", "Its capital is Kalo."), passage("Kalo", "Its mayor is Meri.")


@dataclass
class Cities:
    """An engine that finds a city whose name is in the query; it fails for `down`."""

    is_local = True
    retries = True
    asked: list = field(default_factory=list)

    async def search(self, queries, k):
        self.asked += [(query, k) for query in queries]
        if "down" in queries:
            raise ToolError("the engine is down")
        return [[city for city in (NIDA, KALO) if city.title.lower() in query.lower()][:k] for query in queries]


@pytest.fixture
def engine():
    return Cities()


@pytest.fixture
def prompts(tmp_path):
    for name, text in PROMPTS.items():
        (tmp_path / f"{name}.jinja").write_text(text)
    return load_prompts(tmp_path)


@pytest.fixture
def attempt(engine, prompts):
    """`attempt("rag", replies)`: the trajectory, and the messages and keys of each call of the model. A reply may be
    an error, which is raised."""

    def run(name, replies, top_k=2, **limits):
        left = iter(replies)

        def script(messages, key):
            reply = next(left)
            if isinstance(reply, Exception):
                raise reply
            return reply

        chat = ScriptedChat(script)
        limits = Limits(**({"max_turns": 4, "max_tool_calls": 3} | limits))
        searching = SearchSettings(top_k=top_k, attempts=1)
        roller = partial(ChatRoller, chat)
        answerer = BaselineAnswerer(find("baseline", name)(), roller, "tags", prompts, limits, engine, searching)
        trajectory = asyncio.run(answerer.answer(QUESTION, "q/0"))
        return trajectory, [(asked.key, [plain(message.content) for message in asked.messages]) for asked in chat.asked]

    return run


@pytest.fixture
def agent_of(prompts):
    """`agent_of(texts)`: the tiny policy with a sampler that follows the script, and the sampler."""

    def make(texts):
        settings = gather([], options={"policy.model": "tiny"}).read()
        policy = load_policy("tiny")
        sampler = ScriptedSampler(texts, policy.tokenizer)
        return Agent(settings, policy, sampler, prompts, Limits()), sampler

    return make
