import asyncio
import json
from functools import cache

import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.renderers.conversation import Conversation
from evoseek.rollout.calls import unwatched
from evoseek.rollout.gateway.agents import as_agent
from evoseek.rollout.gateway.attempts import AgentRunner, Rolled
from evoseek.rollout.gateway.server import GATEWAY
from evoseek.rollout.limits import Limits
from evoseek.types import Question

QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))


class Scripted:
    """A gateway over a scripted sampler with the tokenizer of this name."""

    def __init__(self, tokenizer, format="auto"):
        self.tokenizer, self.format = tokenizer, format

    def run(self, agent, texts, *, sampler=None, **options):
        """Run an agent once. `texts` are the completions in the order of the calls, or a script."""
        script = texts if callable(texts) else lambda request: texts[request.turn]
        self.sampler = sampler or ScriptedSampler(script, self.tokenizer, logprob=-0.5, policy_version=3)
        return asyncio.run(self.attempt(agent, **options))

    async def attempt(self, agent, *, trained="all", id="k/0", **limits):
        conversation = cache(lambda tools: Conversation(self.tokenizer, self.format, json.loads(tools)))
        runner = AgentRunner(as_agent(agent), conversation, GATEWAY.open, GATEWAY.close, 4, trained)
        own = Limits(**{"max_turns": 20, "max_total_tokens": 2_000, "max_tokens_per_turn": 200} | limits)
        return await runner.attempt(QUESTION, id, Rolled(self.sampler, own, 1.0, 0), unwatched)


@pytest.fixture
def qwen(made):
    """A model whose chat template has tool calls."""
    return Scripted(made("qwen"))


@pytest.fixture
def tagged(made):
    """A model without a chat template, in the tag format."""
    return Scripted(made("words"), "tags")
