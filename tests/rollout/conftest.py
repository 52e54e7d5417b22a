import asyncio
import typing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from runpy import run_path

import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.errors import ToolError
from evoseek.renderers.tags import TagRenderer
from evoseek.renderers.tool_calls import ToolCallRenderer
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.run import run_trajectory
from evoseek.types import Passage, Question, ToolResult


@pytest.fixture(scope="session")
def made():
    """Makes a tokenizer by its name, once."""
    makers = run_path(str(Path(__file__).parents[1] / "doubles" / "made_tokenizers.py"))["MAKERS"]
    return cache(lambda name: makers[name]())


class Mayors:
    """A tool with one passage for every query; `waits`, `fails` and `hangs` are queries of their own."""

    name = "search"
    schema: typing.ClassVar = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}

    def __init__(self):
        self.order = []

    def for_question(self, question, trajectory_id):
        return self

    async def __call__(self, call):
        query = call.arguments.get("query")
        self.order.append(f"{query} begins")
        if query == "waits":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if query == "fails":
            raise ToolError("the engine is down")
        if query == "breaks":
            raise ZeroDivisionError("division by zero")
        if query == "cancels":
            raise asyncio.CancelledError("the client gave up")
        if query == "hangs":
            await asyncio.Event().wait()
        self.order.append(f"{query} ends")
        passage = Passage("a#0", "a", "Kalo", f"{query} : Meri")
        return ToolResult(call, passage.text, (passage,), 0.25)


@pytest.fixture
def mayors():
    return Mayors()


@dataclass
class Stage:
    """A renderer with all that a rollout needs but the script."""

    tokenizer: typing.Any
    renderer: typing.Any
    tool: Mayors

    def sampler(self, script, **options):
        return ScriptedSampler(script, self.tokenizer, **options)

    def setting(self, sampler, **limits):
        env = SolverEnv([self.tool], load_prompts("tiny"), self.renderer.format)
        return {
            "env": env,
            "renderer": self.renderer,
            "sampler": sampler,
            "limits": Limits(**limits),
            "temperature": 0.7,
            "seed": 5,
        }

    def run(self, script, **limits):
        """One trajectory, its sampler beside it."""
        sampler = self.sampler(script)
        setting = self.setting(sampler, **limits)
        return asyncio.run(run_trajectory(QUESTION, trajectory_id="q/0", **setting)), sampler

    def say(self, *turns):
        return self.run({"q/0": turns})[0]


QUESTION = Question("q", "who is the mayor of Kalo ?", ("Meri",))


@pytest.fixture
def tags(made, mayors):
    return Stage(made("base"), TagRenderer(made("base")), mayors)


@pytest.fixture
def tools(made, mayors):
    return Stage(made("qwen"), ToolCallRenderer(made("qwen"), [Mayors.schema]), mayors)


@pytest.fixture
def chat_tags(made, mayors):
    """The tag format with a model that has a chat template."""
    return Stage(made("qwen"), TagRenderer(made("qwen")), mayors)
