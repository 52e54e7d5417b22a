import asyncio

import pytest

from evoseek.env.prompts import load_prompts
from evoseek.env.tools import SearchTool
from evoseek.errors import ToolError
from evoseek.protocols import SearchEngine
from evoseek.types import Passage, ToolCall

MEIRI = Passage("a#0", "a", "Kalo", "Kalo 's mayor is Meri .")


class OneBook:
    is_local = True

    def __init__(self):
        self.asked = []

    async def search(self, queries, k):
        self.asked.append((list(queries), k))
        if "outage" in queries:
            raise ToolError("the engine is down")
        return [[MEIRI][:k] for _ in queries]


@pytest.fixture
def engine():
    return OneBook()


@pytest.fixture
def tool(engine):
    assert isinstance(engine, SearchEngine)
    return SearchTool(engine, 2, template=load_prompts("tiny")["observation"])


def call(tool, **arguments):
    return asyncio.run(tool(ToolCall("search", arguments)))


def test_shows_the_passages_and_keeps_them(tool, engine):
    result = call(tool, query=" mayor \ud800")
    assert (result.text, result.passages) == (MEIRI.text, (MEIRI,))
    assert result.latency_s > 0
    assert engine.asked == [(["mayor \ufffd"], 2)]  # lone surrogates reach no engine


def test_an_empty_query_finds_nothing_and_a_wrong_argument_is_told(tool, engine):
    assert call(tool, query=" ").text == "nothing found"
    assert '"query"' in call(tool, quary="mayor").text
    assert '"query"' in call(tool, query=["mayor"]).text
    assert engine.asked == []


def test_a_failed_engine_is_a_tool_error(tool):
    with pytest.raises(ToolError, match="down"):
        call(tool, query="outage")


def test_the_schema_names_the_tool_and_its_argument(tool):
    assert tool.name == tool.schema["function"]["name"] == "search"
    assert tool.schema["function"]["parameters"]["required"] == ["query"]
