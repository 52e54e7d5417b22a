import asyncio
import time

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import SearchEngine
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.settings import ToolContext
from evoseek.rollout.tools import FunctionTool, SearchTool
from evoseek.types import Passage, Question, ToolCall, ToolResult

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
    started = time.perf_counter()
    result = call(tool, query=" mayor \ud800")
    assert (result.text, result.passages) == (MEIRI.text, (MEIRI,))
    assert 0 < result.latency_s < time.perf_counter() - started
    assert engine.asked == [(["mayor \ufffd"], 2)]  # lone surrogates reach no engine


def test_it_is_refused_where_there_is_no_engine():
    context = ToolContext(load_settings(), load_prompts("tiny"), None, shared=None, web=None)
    with pytest.raises(ConfigError, match="The tool search needs an engine"):
        SearchTool.build(SearchTool.Settings(), context)


def test_an_empty_query_finds_nothing_and_a_wrong_argument_is_told(tool, engine):
    assert call(tool, query=" ").text == "nothing found"
    assert '"query"' in call(tool, quary="mayor").text
    assert '"query"' in call(tool, query=["mayor"]).text
    assert engine.asked == []


@pytest.mark.parametrize(
    ("context", "written", "asked"),
    [
        (0, "<think> Kalo is a town. </think> <search> mayor </search>", "mayor"),
        (99, "<think> Kalo is a town. </think> <search> mayor </search>", "Kalo is a town.\nmayor"),
        (7, "<think> Kalo is a town. </think> <search> mayor </search>", "a town.\nmayor"),
        (
            99,
            '<think>\nThe mayor of Kalo?\n</think>\n<tool_call>{"arguments": {"query": "mayor"}}',
            "The mayor of Kalo?\nmayor",
        ),
        (99, "<search> mayor </search>", "mayor"),
        (99, "", "mayor"),
    ],
)
def test_the_engine_is_told_what_the_model_wrote_before_its_query(engine, context, written, asked):
    tool = SearchTool(engine, 2, template=load_prompts("tiny")["observation"], context=context)
    result = call(tool.after(written), query="mayor")
    assert engine.asked == [([asked], 2)]
    assert result.call.arguments == {"query": "mayor"}  # what is recorded is the model's own call


def test_a_failed_engine_is_a_tool_error(tool):
    with pytest.raises(ToolError, match="down"):
        call(tool, query="outage")


def test_the_schema_names_the_tool_and_its_argument(tool):
    assert tool.name == tool.schema["function"]["name"] == "search"
    assert tool.schema["function"]["parameters"]["required"] == ["query"]


class Own(OneBook):
    """An engine that somebody wrote, and did not keep to the types."""

    def __init__(self, found):
        self.found = found

    async def search(self, queries, k):
        return self.found


@pytest.mark.parametrize(
    ("found", "got"),
    [
        (None, "gave None for 1 queries"),
        ("Kalo", "gave 'Kalo' for 1 queries"),
        ([], "gave 0 results for 1 queries"),
        ([[MEIRI], [MEIRI]], "gave 2 results for 1 queries"),
        ([MEIRI], "gave Passage(id='a#0'"),
        ([None], "gave None as the result of a query"),
        ([["Kalo 's mayor"]], 'gave "Kalo \'s mayor", of the type str, as a passage'),
        ([[{"id": "a", "title": "Kalo", "text": "Kalo"}]], "of the type dict, as a passage"),
        ([[MEIRI, Passage("a", "a", None, "text")]], "title=None"),
    ],
)
def test_an_engine_that_does_not_keep_to_its_types_is_a_clear_failure(found, got):
    tool = SearchTool(Own(found), 2, template=load_prompts("tiny")["observation"])
    with pytest.raises(ToolError) as failure:
        call(tool, query="mayor")
    assert got in str(failure.value)
    assert "The search engine Own gave" in str(failure.value)
    assert "Expected for each query a list of evoseek.types.Passage" in str(failure.value)


def test_an_engine_may_give_tuples():
    tool = SearchTool(Own(((MEIRI,),)), 2, template=load_prompts("tiny")["observation"])
    assert call(tool, query="mayor").passages == (MEIRI,)


class Shelf:
    """Ranks the passages d0#0, d0#1, d1#0, d1#1, ... for every query."""

    is_local = True

    def __init__(self, documents):
        self.asked = []
        self.passages = [Passage(f"d{n}#{m}", f"d{n}", "t", "x") for n in range(documents) for m in range(2)]

    async def search(self, queries, k):
        self.asked.append(k)
        return [self.passages[:k] for _ in queries]


@pytest.mark.parametrize(
    ("hidden", "found", "asked"),
    [
        ([], ["d0#0", "d0#1", "d1#0"], [3]),
        (["d9", "d4"], ["d0#0", "d0#1", "d1#0"], [3]),
        (["d0"], ["d1#0", "d1#1", "d2#0"], [3, 6]),
        (["d0", "d1", "d3"], ["d2#0", "d2#1", "d4#0"], [3, 6, 12]),
        (["d0", "d1", "d2", "d3"], ["d4#0", "d4#1"], [3, 6, 12]),  # no more are in the index
    ],
)
def test_hidden_documents_are_not_found_and_others_take_their_place(hidden, found, asked):
    engine = Shelf(5)
    tool = SearchTool(engine, 3, template=load_prompts("tiny")["observation"])
    bound = tool.for_question(Question("q", "who?", (), {"answerable": False, "hidden": hidden}), "q/0")
    assert [passage.id for passage in call(bound, query="x").passages] == found
    assert engine.asked == asked
    assert len(call(tool, query="x").passages) == 3  # the tool of other questions is as it was


def test_what_is_hidden_stays_hidden_in_an_engine_that_is_bound_to_the_question():
    class Bound:
        def for_question(self, question, trajectory_id):
            return Shelf(2)

    tool = SearchTool(Bound(), 2, template=load_prompts("tiny")["observation"], context=5)
    bound = tool.for_question(Question("q", "who?", ("x",), {"hidden": ["d0"]}), "q/0").after("so")
    assert [passage.id for passage in call(bound, query="x").passages] == ["d1#0", "d1#1"]


async def weather(city: str, day: int = 1) -> str:
    """Say how the weather
    will be.

    A second paragraph is for readers of the code.
    """
    if city == "nowhere":
        raise ToolError("no such city")
    return f"{city}, {day + 1}"


class TestFunctions:
    def test_its_name_docstring_and_type_hints_are_the_schema(self):
        parameters = {
            "type": "object",
            "properties": {"city": {"type": "string"}, "day": {"type": "integer", "default": 1}},
            "required": ["city"],
            "additionalProperties": False,
        }
        about = {"name": "weather", "description": "Say how the weather will be.", "parameters": parameters}
        assert FunctionTool(weather).schema == {"type": "function", "function": about}

    def test_arguments_are_converted_to_their_types(self):
        tool = FunctionTool(weather)
        assert call(tool, city="Kalo", day="3").text == "Kalo, 4"
        assert call(tool, city="Kalo").text == "Kalo, 2"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({}, "city: Field required"),
            ({"city": "a", "day": "x"}, "day: Input"),
            ({"city": "a", "x": "b"}, "x: Extra"),
        ],
    )
    def test_wrong_arguments_are_the_models_mistake_and_the_result_says_so(self, arguments, words):
        text = call(FunctionTool(weather), **arguments).text
        assert text.startswith(f'The tool "weather" cannot take these arguments: {words}')

    def test_trap_a_failure_of_the_function_is_no_result(self):
        with pytest.raises(ToolError, match="no such city"):
            call(FunctionTool(weather), city="nowhere")

    def test_passages_are_shown_and_kept_with_what_was_asked(self):
        def find(words: str):
            """Find passages."""
            return [MEIRI]

        result = call(FunctionTool(find), words="mayor")
        assert (result.text, result.passages, result.queries) == (MEIRI.contents, (MEIRI,), ("mayor",))

    @pytest.mark.parametrize(
        ("given", "text"), [(2, "2"), (ToolResult(ToolCall("x", {}), "own"), "own"), ([], "Nothing was found.")]
    )
    def test_other_results(self, given, text):
        def own():
            """Give something."""
            return given

        result = call(FunctionTool(own))
        assert (result.text, result.call) == (text, ToolCall("search", {}))

    @pytest.mark.parametrize("given", [None, {"a": 1}, ["a"]])
    def test_trap_anything_else_is_a_failure(self, given):
        def own():
            """Give something."""
            return given

        with pytest.raises(TypeError, match="expected a text, a number, passages"):
            call(FunctionTool(own))

    def test_a_function_that_cannot_be_described_is_refused(self):
        def bare(city):
            return city

        def many(*cities):
            """Take many."""

        def strange(engine: OneBook):
            """Take an object."""

        for function in (bare, many, strange):
            with pytest.raises(
                ConfigError, match=f"The function {function.__name__} cannot be a tool: .* Expected a doc"
            ):
                FunctionTool(function)
