import asyncio
from dataclasses import replace

import pytest
from tests.search.spelling import LetterEncoder

from evoseek.errors import ToolError
from evoseek.search.calling import RetryingEngine, merge_copies, outside, search_others
from evoseek.search.dense import DenseIndex, HybridIndex
from evoseek.search.lexical import LexicalIndex
from evoseek.search.remote import RemoteEngine, RemoteSettings
from evoseek.types import Passage

FOUND = [[Passage("p", "d", "Kalo", "text")]]


class Engine:
    """Fails with each of `failures` in turn, then finds."""

    is_local = True

    def __init__(self, *failures):
        self.failures, self.calls = list(failures), []

    async def search(self, queries, k):
        self.calls.append((tuple(queries), k))
        if self.failures:
            raise self.failures.pop(0)
        return FOUND


def search(engine, attempts=3, wait_s=0.0):
    return asyncio.run(RetryingEngine(engine, attempts, wait_s).search(["kalo"], 3))


def down(number):
    return ToolError(f"the engine is down ({number})")


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_call_that_fails_is_made_again(failures):
    engine = Engine(*map(down, range(failures)))
    assert search(engine) == FOUND
    assert engine.calls == [(("kalo",), 3)] * (failures + 1)


def test_after_the_last_attempt_it_names_the_last_cause():
    engine = Engine(*map(down, range(5)))
    with pytest.raises(ToolError, match=r"each of 3 attempts; the last time: the engine is down \(2\)"):
        search(engine)
    assert len(engine.calls) == 3


def test_waits_double(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(ToolError):
        search(Engine(*map(down, range(4))), attempts=4, wait_s=0.5)
    assert waits == [0.5, 1.0, 2.0]


@pytest.mark.parametrize("error", [KeyError("a bug"), asyncio.CancelledError("given up")])
def test_anything_but_a_tool_error_passes_through_at_once(error):
    engine = Engine(error)
    with pytest.raises(type(error)):
        search(engine)
    assert len(engine.calls) == 1


def test_cancelling_ends_a_wait():
    engine = Engine(down(0))

    async def give_up():
        await asyncio.wait_for(RetryingEngine(engine, 3, 60.0).search(["kalo"], 3), 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(give_up())
    assert len(engine.calls) == 1


def test_it_is_as_local_as_its_engine():
    engine = Engine()
    assert RetryingEngine(engine, 1, 0.0).is_local
    engine.is_local = False
    assert not RetryingEngine(engine, 1, 0.0).is_local


def test_each_query_is_searched_as_deep_as_its_hidden_documents_make_it():
    ranked = [Passage(f"p{place}", f"d{place // 3}", "", "") for place in range(10)]
    calls = []

    class Ranked:
        is_local = True

        async def search(self, queries, k):
            calls.append((*queries, k))
            return [ranked[:k] for _ in queries]

    found = asyncio.run(search_others(Ranked(), ["a", "b", "c"], [{"d0"}, set(), {"d0", "d1", "d2"}], 2))
    assert [[passage.id for passage in one] for one in found] == [["p3", "p4"], ["p0", "p1"], ["p9"]]
    assert calls == [("a", "b", "c", 2), ("a", "c", 4), ("a", "c", 8), ("c", 16)]


SAYS = "The warranty of the pump covers the seal and the motor for two years, if the pump is serviced every year by us."
VARIANTS = (SAYS, f"  {SAYS}\n", SAYS.upper(), SAYS.replace(" ", "\n\t"), SAYS.replace("pump", "Pump"))


def page(name, text, title="Warranty", **place):
    return Passage(f"{name}#0", name, title, text, 0, len(text), file=f"{name}.md", **place)


def corpus():
    copies = [page(f"v{number}", text, title=f"v{number}") for number, text in enumerate(VARIANTS * 5)]
    return [
        *copies,
        page("frost", "The warranty of the pump does not cover frost."),
        page("motor", "A motor.", "Motor"),
    ]


@pytest.mark.parametrize("k", [1, 2, 3, 30])
@pytest.mark.parametrize("kind", ["lexical", "dense", "hybrid"])
def test_copies_are_one_result_with_their_places(kind, k, tmp_path):
    if kind == "lexical":
        index = LexicalIndex.build(tmp_path / "i", corpus())
    else:
        engine = {"dense": DenseIndex, "hybrid": HybridIndex}[kind]
        index = engine.build(tmp_path / "i", corpus(), LetterEncoder(), engine=kind)
    found = index.find("warranty of the pump and motor", k)
    assert len(merge_copies(found)) == len(found) == min(k, 3)
    places = [len(one.copies) for one in found if one.title not in ("Warranty", "Motor")]
    assert all(count >= 7 for count in places)
    if k == 30:
        assert places == [24]


@pytest.mark.parametrize("hidden", [{"v0"}, {"v0", "v1"}, {f"v{number}" for number in range(24)}])
def test_a_copy_stands_for_one_that_is_hidden(hidden, tmp_path):
    index = LexicalIndex.build(tmp_path / "i", corpus())
    (found,) = asyncio.run(search_others(index, ["seal of the pump"], [hidden], 2))
    assert [one.document_id for one in found][:2] == [f"v{len(hidden)}", "frost"]
    assert not {copy.document_id for one in found for copy in one.copies} & hidden
    left = outside(index.find("seal of the pump", 2), {f"v{number}" for number in range(25)})
    assert [one.document_id for one in left] == ["frost"]


def test_a_server_that_gives_copies_is_asked_for_more(monkeypatch):
    ranked = [page(f"v{number}", text) for number, text in enumerate(VARIANTS)] + corpus()[-2:]
    asked = []

    async def found(self, queries, k):
        asked.append((*queries, k))
        return [ranked[:k] if query == "copies" else ranked[-2:][:k] for query in queries]

    monkeypatch.setattr(RemoteEngine, "_found", found)
    engine = RemoteEngine(RemoteSettings(url="http://127.0.0.1:1/retrieve"))
    one, other = asyncio.run(engine.search(["copies", "none"], 2))
    assert [p.document_id for p in one] == ["v0", "frost"]
    assert [p.document_id for p in other] == ["frost", "motor"]
    assert (len(one[0].copies), asked) == (4, [("copies", "none", 2), ("copies", 8)])


@pytest.mark.parametrize(
    ("one", "other", "is_copy"),
    [
        (page("a", SAYS), page("b", SAYS, "Another title"), True),
        (page("a", "It is 10."), page("b", "It  IS 10."), True),
        (page("a", "It is 10.", "a"), page("b", "It is 10.", "b"), True),  # titled by their files
        (page("a", "It is 10.", "Size"), page("b", "It is 10.", "Age"), False),
        (page("a", "It is 10.", heading="Size"), page("a", "It is 10.", heading="Age"), False),
        (page("a/row 1", "It is 10.", heading="row 1"), page("b/row 2", "It is 10.", heading="row 2"), True),
        (page("a", "It is -40 °C."), page("b", "It is 40 °C."), False),
        (page("a", "Caf\u00e9"), page("b", "Cafe\u0301"), True),
        (page("a", ""), page("b", ""), False),
        (page("a", "Is it C++?"), page("b", "Is it C?"), False),
    ],
)
def test_what_is_a_copy(one, other, is_copy):
    """A short text says the same only under the same title and heading."""
    found = merge_copies([one, other])
    assert found == ([one] if is_copy else [one, other])
    assert found[0].copies == ((other,) if is_copy else ())
    assert merge_copies([replace(one, copies=(other,)), other])[0].copies[:1] == (other,)
