"""The tools of the web: what they show, what they refuse, and that no rollout opens what only another one has found."""

import asyncio
import time
from dataclasses import replace

import pytest

from evoseek.errors import PageError, ToolError
from evoseek.rollout.prompts import load_prompts
from evoseek.types import Page, Passage, Question, ToolCall
from evoseek.web.tools import BrowseTool, WebRollouts, WebSearchTool

KALO, NIDA = Question("q1", "Who is the mayor of Kalo?", ("Meri",)), Question("q2", "Where is Nida?", ("Tolu",))


def result(name):
    url = f"http://web.test/{name}"
    return Passage(url, url, f"About\n{name}", f"{name} is\na place.", score=0.5)


class Web:
    """An engine, a fetcher and a reader: a query finds the page of its name, and a page says where it is."""

    is_local = True

    def __init__(self):
        self.asked, self.fetched, self.read_for, self.ended = [], [], [], []

    async def search(self, queries, k):
        self.asked.append((list(queries), k))
        if "outage" in queries:
            raise ToolError("the engine is down")
        return [[] if query == "nobody" else [result(name) for name in query.split()][:k] for query in queries]

    async def fetch(self, url):
        self.fetched.append(url)
        name = url.rpartition("/")[2]
        if name == "gone":
            raise PageError("The server says 404: there is no such page.")
        if name == "reset":
            raise ToolError("connection reset")
        for _ in range(3):
            await asyncio.sleep(0)
        self.ended.append(url)
        return Page(url, f"About\n{name}", f"{name} is a place.")

    async def read(self, page, *, task, key):
        self.read_for.append((task, key))
        return "" if page.url.endswith("dull") else f"Notes: {page.text}"


@pytest.fixture
def web():
    return Web()


def tools_of(web, prompts="default", rollouts=None, **options):
    prompts, rollouts = load_prompts(prompts), rollouts or WebRollouts()
    search = WebSearchTool(web, prompts["web_results"], rollouts, k=2)
    return search, BrowseTool(web, web, prompts["pages"], rollouts, **options)


def bind(tools, question=KALO, trajectory="t/0"):
    return [tool.for_question(question, trajectory) for tool in tools]


def search(tool, *queries, **arguments):
    return asyncio.run(tool(ToolCall("web_search", arguments or {"queries": list(queries)})))


def browse(tool, *urls, **arguments):
    return asyncio.run(tool(ToolCall("browse", arguments or {"urls": list(urls)})))


class TestSearch:
    def test_shows_title_url_and_snippet_of_each_query_s_results_in_a_line_each(self, web):
        tool, _ = bind(tools_of(web))
        started = time.perf_counter()
        found = search(tool, " kalo nida tolu ", "nobody")
        assert found.text == (
            "Results for: kalo nida tolu\n"
            "[1] About kalo\nhttp://web.test/kalo\nkalo is a place.\n"
            "[2] About nida\nhttp://web.test/nida\nnida is a place.\n\n"
            "Results for: nobody\nNothing was found. Try a shorter query or other words."
        )
        assert [(p.id, p.document_id, p.title, p.score) for p in found.passages] == [
            ("http://web.test/kalo", "http://web.test/kalo", "About kalo", 0.5),
            ("http://web.test/nida", "http://web.test/nida", "About nida", 0.5),
        ]
        assert 0 < found.latency_s < time.perf_counter() - started
        assert web.asked == [(["kalo nida tolu", "nobody"], 2)]

    def test_the_tiny_set_is_bare(self, web):
        tool, browser = bind(tools_of(web, "tiny"))
        assert search(tool, "kalo", "nobody").text == "About kalo web.test/kalo kalo is a place.\nnothing found"
        shown = browse(browser, "web.test/kalo", "web.test/x").text
        assert shown == "Notes: kalo is a place.\nerror"

    @pytest.mark.parametrize(
        "arguments",
        [
            {"query": "kalo"},
            {"queries": "kalo"},
            {"queries": []},
            {"queries": ["a", "b", "c", "d"]},
            {"queries": ["a", 1]},
            {"queries": [["a"]]},
            {"queries": ["a", " "]},
            {"queries": None},
        ],
    )
    def test_wrong_arguments_are_told_what_is_expected(self, web, arguments):
        tool, _ = bind(tools_of(web))
        told = search(tool, **arguments)
        assert told.text == 'The tool "web_search" takes one argument, "queries", which is a list of 1 to 3 texts.'
        assert web.asked == []

    def test_a_failed_engine_is_a_tool_error(self, web):
        with pytest.raises(ToolError, match="down"):
            search(bind(tools_of(web))[0], "outage")

    def test_endless_titles_and_snippets_are_cut(self, web):
        async def endless(queries, k):
            return [[Passage("http://a.test/", "", "x" * 10**5, "y" * 10**5)]]

        web.search = endless
        assert len(search(bind(tools_of(web))[0], "kalo").text) < 2000

    def test_lone_surrogates_reach_no_engine(self, web):
        search(bind(tools_of(web))[0], "a\ud800")
        assert web.asked[0][0] == ["a\ufffd"]


HIDDEN = ["http://web.test/kalo", "web.test/kalo", "https://web.test/kalo/", "http://web.test/kalo#mayor"]


@pytest.mark.parametrize("address", HIDDEN)
class TestHidden:
    """A page that is hidden from the question, by whichever of its addresses."""

    @pytest.fixture
    def bound(self, web, address):
        return bind(tools_of(web, only_found=False), Question("q", "Who ?", (), {"hidden": [address]}))

    @pytest.mark.parametrize("document", [None, ""])
    def test_is_not_found(self, web, bound, document):
        """Also where the engine calls the document by another name. The next result takes its place."""
        plain = web.search

        async def named(queries, k):
            found = await plain(queries, k)
            return [
                [replace(one, document_id=one.id if document is None else document) for one in own] for own in found
            ]

        web.search = named
        shown = search(bound[0], "kalo nida tolu", "kalo")
        assert "web.test/kalo" not in shown.text
        ids = [passage.id for passage in shown.passages]
        assert ids == (["http://web.test/nida"] if document == "" else ["http://web.test/nida", "http://web.test/tolu"])

    @pytest.mark.parametrize("url", HIDDEN)
    def test_is_not_opened(self, web, bound, url):
        shown = browse(bound[1], url, "http://web.test/nida")
        assert "kalo is a place" not in shown.text
        assert "There is no such page." in shown.text
        assert web.fetched == ["http://web.test/nida"]

    def test_is_not_shown_by_an_address_that_leads_to_it(self, web, bound):
        async def redirected(url):
            return Page("http://web.test/kalo", "About kalo", "kalo is a place.")

        web.fetch = redirected
        shown = browse(bound[1], "http://web.test/old")
        assert shown.passages == ()
        assert "There is no such page." in shown.text


class TestBrowse:
    def test_reads_the_pages_that_were_found_for_the_rollout_s_question(self, web):
        searcher, browser = bind(tools_of(web))
        search(searcher, "kalo dull")
        started = time.perf_counter()
        shown = browse(browser, "http://web.test/kalo#mayor", "http://web.test/dull", " http://web.test/kalo")
        assert 0 < shown.latency_s < time.perf_counter() - started
        assert shown.text == (
            "About kalo\nhttp://web.test/kalo\nNotes: kalo is a place.\n\n"
            "About dull\nhttp://web.test/dull\nNothing on this page seems to help with the question."
        )
        page = Passage("http://web.test/kalo", "http://web.test/kalo", "About kalo", "Notes: kalo is a place.")
        assert shown.passages == (page,)
        assert web.fetched == ["http://web.test/kalo", "http://web.test/dull"]  # once each, without the fragment
        assert web.read_for == [(KALO.text, "t/0/page-0"), (KALO.text, "t/0/page-1")]

    def test_a_result_s_address_may_lack_its_scheme(self, web):
        searcher, browser = bind(tools_of(web))
        search(searcher, "kalo")
        shown = browse(
            browser,
            "web.test/kalo#mayor",
            "http://web.test/kalo",
            "//web.test/kalo",
        )
        assert web.fetched == ["http://web.test/kalo"]
        assert [passage.id for passage in shown.passages] == ["http://web.test/kalo"]
        assert "//web.test/kalo\nThis page could not be read" in shown.text

    def test_an_address_without_scheme_never_takes_the_place_of_a_whole_one(self, web):
        async def found(queries, k):
            return [[Passage(url, url, "", "") for url in ("http://http://web.test/a", "http://web.test/a")]]

        web.search = found
        searcher, browser = bind(tools_of(web))
        search(searcher, "kalo")
        browse(browser, "http://web.test/a")
        assert web.fetched == ["http://web.test/a"]

    def test_pages_are_numbered_over_a_rollout_s_calls(self, web):
        searcher, browser = bind(tools_of(web))
        search(searcher, "kalo")
        browse(browser, "http://web.test/kalo")
        browse(browser, "http://web.test/kalo")
        assert [key for _, key in web.read_for] == ["t/0/page-0", "t/0/page-1"]

    @pytest.mark.parametrize("url", ["http://web.test/other", "http://169.254.169.254/", "http://web.test/kalo?q=1"])
    def test_what_was_not_found_is_not_opened_and_said_so(self, web, url):
        searcher, browser = bind(tools_of(web))
        search(searcher, "kalo")
        shown = browse(browser, url)
        assert shown.text.startswith(f"{url}\nThis page could not be read: It is not among the results")
        assert (web.fetched, shown.passages) == ([], ())

    def test_a_page_s_own_problem_is_told_and_the_others_are_read(self, web):
        searcher, browser = bind(tools_of(web))
        search(searcher, "gone kalo")
        shown = browse(browser, "http://web.test/gone", "http://web.test/kalo")
        assert "could not be read: The server says 404: there is no such page.\n\nAbout kalo" in shown.text
        assert len(shown.passages) == 1

    def test_one_failed_fetch_fails_the_call_after_the_others_have_ended(self, web):
        searcher, browser = bind(tools_of(web))
        search(searcher, "reset kalo")
        with pytest.raises(ToolError, match="connection reset"):
            browse(browser, "http://web.test/reset", "http://web.test/kalo")
        assert web.ended == ["http://web.test/kalo"]

    def test_any_page_may_be_opened_if_told_so(self, web):
        _, browser = bind(tools_of(web, only_found=False))
        assert "Notes: x is a place." in browse(browser, "http://elsewhere.test/x#y").text
        assert web.fetched == ["http://elsewhere.test/x"]

    @pytest.mark.parametrize("arguments", [{}, {"urls": "http://web.test/kalo"}, {"urls": ["a"] * 4}, {"urls": [{}]}])
    def test_wrong_arguments_are_told_what_is_expected(self, web, arguments):
        _, browser = bind(tools_of(web))
        told = asyncio.run(browser(ToolCall("browse", arguments)))
        assert told.text == 'The tool "browse" takes one argument, "urls", which is a list of 1 to 3 texts.'


class TestRollouts:
    """What one rollout has found opens nothing in another, whatever their ids, questions and order."""

    def opens(self, browser):
        return "Notes:" in browse(browser, "http://web.test/kalo").text

    @pytest.mark.parametrize("other", [(KALO, "t/1"), (NIDA, "t/0"), (KALO, "t/0")])
    @pytest.mark.parametrize("reverse", [False, True])
    def test_trap_another_rollout_s_results_open_nothing(self, web, other, reverse):
        tools = tools_of(web)[:: -1 if reverse else 1]
        one, another = (dict(zip("ab", bind(tools, *who), strict=True)) for who in ((KALO, "t/0"), other))
        names = "ba" if reverse else "ab"
        search(one[names[0]], "kalo")
        assert self.opens(one[names[1]])
        assert not self.opens(another[names[1]])
        search(another[names[0]], "kalo")
        assert self.opens(another[names[1]])

    def test_a_tool_never_joins_another_rollout_not_even_one_that_was_not_bound_whole(self, web):
        searcher, browser = tools_of(web)
        search(searcher.for_question(KALO, "t/0"), "kalo")
        assert not self.opens(browser.for_question(KALO, "t/1"))

    def test_rollouts_side_by_side_each_open_their_own(self, web):
        tools, names = tools_of(web, "tiny"), ["kalo", "nida", "tolu", "meri"]
        bound = [bind(tools, trajectory=f"t/{name}") for name in names]

        async def one(name, searcher, browser):
            await searcher(ToolCall("web_search", {"queries": [name]}))
            shown = [await browser(ToolCall("browse", {"urls": [f"http://web.test/{n}"]})) for n in names]
            return [result.text != "error" for result in shown]

        async def play():
            return await asyncio.gather(*(one(name, *pair) for name, pair in zip(names, bound, strict=True)))

        assert asyncio.run(play()) == [[name == other for other in names] for name in names]

    def test_tools_that_were_never_bound_are_a_tool_error(self, web):
        searcher, browser = tools_of(web)
        with pytest.raises(ToolError, match="bound to a rollout"):
            search(searcher, "kalo")
        with pytest.raises(ToolError, match="bound to a rollout"):
            browse(browser, "http://web.test/kalo")


def test_the_schemas_name_the_tools_and_their_one_argument(web):
    for tool, name, argument in zip(tools_of(web), ("web_search", "browse"), ("queries", "urls"), strict=True):
        function = tool.schema["function"]
        assert tool.name == function["name"] == name
        assert function["parameters"]["required"] == [argument]
        assert function["parameters"]["properties"][argument]["maxItems"] == 3
