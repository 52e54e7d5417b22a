"""Searches of rollouts: each query and page once, none of a rollout that failed, none that found nothing."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.curation.batches import BatchProgress
from evoseek.errors import ToolError
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.rollout.tools import SearchTool
from evoseek.storage.jsonl import open_growing_file
from evoseek.systems.zerosearch.searches import PagingEngine, collecting, load_records
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory

TOKENIZER = tiny_tokenizer()
PROMPTS = load_prompts("tiny")


class Engine:
    """Finds up to four passages of any query but "nothing"; fails for "error"."""

    is_local = True

    async def search(self, queries, k):
        if "error" in queries:
            raise ToolError("the engine is down")
        found = [Passage(f"{i}", f"{i}", "", f"{queries[0]} {i}") for i in range(min(k, 4))]
        return [[] if query == "nothing" else found for query in queries]


def collected(scripts, *, pages=1, k=2):
    """What is written, and what is said of it."""
    texts = {f"collect/{name}": turns for name, turns in scripts.items()}
    engine = PagingEngine(Engine(), pages)
    env = SolverEnv([SearchTool(engine, k, template=PROMPTS["observation"])], PROMPTS)
    roller = Roller(env, TagRenderer(TOKENIZER), ScriptedSampler(texts, TOKENIZER), Limits(), 1.0, 0)
    questions = [Question(name, f"{name} ?", ("meri",)) for name in scripts]
    return written(collect_into(questions, roller, engine))


def collect_into(questions, roller, engine):
    return lambda file: collecting(roller, engine).fill(questions, file)


def written(fill):
    with TemporaryDirectory() as folder, open_growing_file(Path(folder, "s.jsonl"), {}) as file:
        said = asyncio.run(fill(file))
        return (load_records(file.path) if file.size else []), said


def search(query):
    return f"<search> {query} </search>"


ANSWER = "<answer> meri </answer>"


def test_every_query_and_page_once():
    scripts = {
        "a": [search("year"), search("film"), search("year"), ANSWER],
        "b": [search("year"), ANSWER],
        "c": [search("nothing"), search(""), ANSWER],
    }
    records, said = collected(scripts, pages=3)
    found = [(r.question.id, r.query, r.page, [p.id for p in r.passages], r.trajectory) for r in records]
    assert found == [
        ("a", "year", 1, ["0", "1"], "collect/a"),
        ("a", "year", 2, ["2", "3"], "collect/a"),
        ("a", "film", 1, ["0", "1"], "collect/a"),
        ("a", "film", 2, ["2", "3"], "collect/a"),
        ("b", "year", 1, ["0", "1"], "collect/b"),
        ("b", "year", 2, ["2", "3"], "collect/b"),
    ]
    assert [record.earlier for record in records[:3]] == [(), (), ("year",)]
    assert {record.useful for record in records} == {None}
    assert said == BatchProgress(done=3, counts={"1": 3, "2": 3})


def test_a_record_knows_the_queries_before_it_also_those_that_found_nothing():
    scripts = {"a": [search("year"), search("nothing"), search("year"), search("film"), ANSWER]}
    records, _ = collected(scripts)
    assert {record.query: record.earlier for record in records} == {"year": (), "film": ("year", "nothing")}


def test_calls_that_searched_for_nothing_are_passed_over():
    """As a policy with tool calls makes them: without a query, with one that is no text, with an empty one."""
    calls = ({"q": "year"}, {"query": 5}, {"query": " "}, {"query": "film"})
    passages = {"film": (Passage("0", "0", "", "film 0"),)}
    results = [ToolResult(ToolCall("search", call), "", passages.get(call.get("query"), ())) for call in calls]

    class Playing:
        async def one(self, question, trajectory_id):
            return Trajectory(trajectory_id, question, "solver", (), (), tuple(results), StopReason.ANSWERED)

    engine = PagingEngine(Engine(), 1)
    asyncio.run(engine.search(["film"], 2))
    records, _ = written(collect_into([Question("a", "a ?", ("meri",))], Playing(), engine))
    assert [(record.query, record.earlier) for record in records] == [("film", ())]


def test_a_rollout_that_failed_gives_nothing_and_is_counted():
    scripts = {"a": [search("year"), search("error")], "b": [search("film"), ANSWER]}
    records, said = collected(scripts)
    assert [record.question.id for record in records] == ["b"]
    ((reason, times),) = said.failures.items()
    assert "the engine is down" in reason
    assert times == 1


class Numbered:
    """Finds passages 1, 2, ... of each query, as many as asked for but no more than five."""

    is_local = True

    def __init__(self):
        self.calls = []

    async def search(self, queries, k):
        self.calls.append((list(queries), k))
        return [[Passage(f"{query}{i}", query, query, str(i)) for i in range(1, min(k, 5) + 1)] for query in queries]


def ids(passages):
    return [passage.id for passage in passages]


def test_the_first_page_is_given_and_all_are_kept():
    inner = Numbered()
    engine = PagingEngine(inner, 3)
    found = asyncio.run(engine.search(["a", "b"], 2))
    assert [ids(passages) for passages in found] == [["a1", "a2"], ["b1", "b2"]]
    assert [ids(page) for page in engine.pages_of("b")] == [["b1", "b2"], ["b3", "b4"], ["b5"]]
    assert inner.calls == [(["a", "b"], 6)]
    assert engine.is_local


def test_pages_are_without_what_was_hidden_and_as_large_as_the_first():
    engine = PagingEngine(Hiding(), 2)
    tool = SearchTool(engine, 2, template=PROMPTS["observation"])
    own = tool.for_question(Question("q", "?", ("x",), {"hidden": ["d1", "d3"]}), "q/0")
    result = asyncio.run(own(ToolCall("search", {"query": "a"})))
    pages = engine.pages_of("a", ("d1", "d3"))
    assert [ids(page) for page in (result.passages, *pages)] == [["a2", "a4"], ["a2", "a4"], ["a5", "a6"]]


class Hiding:
    """Finds passages 1, 2, ... of documents of their own."""

    is_local = True

    async def search(self, queries, k):
        return [[Passage(f"{query}{i}", f"d{i}", "", "") for i in range(1, k + 1)] for query in queries]


def test_an_engine_that_fails_is_passed_on_and_nothing_is_kept():
    engine = PagingEngine(Engine(), 2)
    with pytest.raises(ToolError):
        asyncio.run(engine.search(["error"], 2))
    with pytest.raises(KeyError):
        engine.pages_of("error")
