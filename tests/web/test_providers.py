"""Providers against a real server that answers in their shapes."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from urllib.parse import parse_qsl, urlsplit

import pytest
from tests.raising import raises

from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import SearchEngine
from evoseek.types import Passage
from evoseek.web.providers import MAX_SNIPPET, MAX_URL, PROVIDERS, CallLimits, JsonApi, WebEngine

http = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "chat" / "chat_server.py")))
KEY = "secret-key"
URL = "https://example.org/a?b=1"
LIMITS = CallLimits(rate_per_s=1e4, attempts=2, wait_s=0.001)
FOUND = [Passage(URL, URL, "Kalo", "Its mayor is Meri.")]

ANSWERS = {
    "serper": {"organic": [{"title": "Kalo", "link": URL, "snippet": "Its mayor is Meri.", "position": 1}]},
    "serpapi": {"organic_results": [{"title": "Kalo", "link": URL, "snippet": "Its mayor is Meri."}]},
    "brave": {"web": {"results": [{"title": "Kalo", "url": URL, "description": "Its mayor is Meri."}]}},
    "tavily": {"results": [{"title": "Kalo", "url": URL, "content": "Its mayor is Meri.", "score": 0.5}]},
    "searxng": {"results": [{"title": "Kalo", "url": URL, "content": "Its mayor is Meri."}]},
}
ASKED = {
    "serper": ("POST", {"q": "who ?", "num": 3, "gl": "fr"}, ("x-api-key", KEY)),
    "serpapi": ("GET", {"engine": "google", "q": "who ?", "num": "3", "gl": "fr", "api_key": KEY}, None),
    "brave": (
        "GET",
        {"text_decorations": "false", "q": "who ?", "count": "3", "gl": "fr"},
        ("x-subscription-token", KEY),
    ),
    "tavily": ("POST", {"query": "who ?", "max_results": 3, "gl": "fr"}, ("authorization", f"Bearer {KEY}")),
    "searxng": ("GET", {"format": "json", "q": "who ?", "gl": "fr"}, None),
}


def says(answer):
    return http.replies(json.dumps(answer).encode())


def engine_of(name, url, api=None):
    return WebEngine(name, replace(api or PROVIDERS[name], url=url), api_key=KEY, limits=LIMITS)


def search(name, answer, *queries, k=3, api=None):
    """What is found, and the requests."""
    with http.ChatServer(says(answer)) as server:
        engine = engine_of(name, f"{server.url}/search", api)
        return asyncio.run(engine.search(queries or ["who ?"], k)), server.received


@pytest.mark.parametrize("name", PROVIDERS)
def test_each_provider_is_asked_and_read_in_its_own_shape(name):
    api = PROVIDERS[name]
    found, (received,) = search(name, ANSWERS[name], api=replace(api, options={**api.options, "gl": "fr"}))
    assert found == [FOUND]
    method, sent, header = ASKED[name]
    assert (received.method, urlsplit(received.path).path) == (method, "/v1/search")
    assert (received.body if method == "POST" else dict(parse_qsl(urlsplit(received.path).query))) == sent
    assert header is None or received.headers[header[0]] == header[1]


def test_another_api_is_told_by_its_shape():
    answer = {"data": {"hits": [{"name": "Kalo", "href": URL, "meta": {"about": "Its mayor is Meri."}}]}}
    api = JsonApi(url="", results="data.hits", title="name", link="href", snippet="meta.about", key_header="X-Key")
    found, (received,) = search("mine", answer, api=api)
    assert found == [FOUND]
    assert received.headers["x-key"] == KEY


def test_each_query_has_its_results_in_order_and_not_more_than_asked_for():
    results = [{"title": str(n), "link": f"https://example.org/{n}", "snippet": ""} for n in range(5)]
    found, received = search("serper", {"organic": results}, "a", "b", k=2)
    assert [[passage.title for passage in passages] for passages in found] == [["0", "1"]] * 2
    assert sorted(request.body["q"] for request in received) == ["a", "b"]


def test_the_same_query_is_asked_for_once():
    found, received = search("serper", ANSWERS["serper"], "a", "b", "a", "a")
    assert found == [FOUND] * 4
    assert len({id(passages) for passages in found}) == 4
    assert sorted(request.body["q"] for request in received) == ["a", "b"]


def test_a_provider_is_asked_for_no_more_than_it_gives():
    _, (received,) = search("tavily", ANSWERS["tavily"], k=50)
    assert received.body["max_results"] == 20


def test_a_long_query_is_cut_and_an_empty_one_finds_nothing():
    _, (received,) = search("serper", ANSWERS["serper"], "w " * 60)
    assert received.body["q"] == " ".join("w" * 50)
    _, (received,) = search("serper", ANSWERS["serper"], "w" * 500)
    assert received.body["q"] == "w" * 400
    assert search("serper", ANSWERS["serper"], " \n\ud800") == ([[]], [])


@pytest.mark.parametrize(
    "url",
    [
        *(None, 7, "", "/a", "example.org", "ftp://example.org/", "javascript:alert(1)", "data:text/html,x", "http://"),
        *("https://[::1", "https://example.org/a b", "https://example.org/\n", "http://example.org/" + "a" * MAX_URL),
    ],
)
def test_a_result_without_a_url_of_the_web_is_left_out(url):
    results = [{"title": "x", "link": url, "snippet": "x"}, *ANSWERS["serper"]["organic"], "no result", None]
    assert search("serper", {"organic": results})[0] == [FOUND]


def test_texts_are_one_line_of_bounded_length():
    result = {"title": " a\x00\u2028b\x1b[31m\ud800 c", "link": URL, "snippet": "x " * MAX_SNIPPET}
    ((passage,),), _ = search("serper", {"organic": [result]})
    assert passage.title == "a b [31m c"
    assert passage.text == ("x " * MAX_SNIPPET)[: MAX_SNIPPET - 1]
    ((passage,),), _ = search("serper", {"organic": [{"title": ["x"], "link": URL}]})
    assert (passage.title, passage.text) == ("", "")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("serper", {"searchParameters": {}, "organic": []}),
        ("serper", {"searchParameters": {}}),
        ("serpapi", {"search_information": {"organic_results_state": "Fully empty"}, "error": "no results"}),
        ("brave", {"type": "search", "query": {"original": "who ?"}}),
        ("tavily", {"results": []}),
        ("searxng", {"results": [], "unresponsive_engines": []}),
    ],
)
def test_an_answer_may_be_that_there_is_nothing(name, answer):
    assert search(name, answer)[0] == [[]]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("serper", {"message": "out of credits"}),
        ("serpapi", {"search_metadata": {"status": "Error"}, "error": "captcha"}),
        ("brave", {}),
        ("brave", {"query": None, "web": None}),
        ("tavily", {"results": None}),
        ("tavily", {"results": {"0": 1}}),
        ("searxng", []),
        ("searxng", None),
        ("searxng", {"results": [], "unresponsive_engines": [["google", "CAPTCHA"]]}),
    ],
)
def test_no_failure_is_taken_for_an_answer_without_results(name, answer):
    with pytest.raises(
        ToolError, match=f"no answer of the search provider {name} at http://127.*(expected a list|CAP)"
    ):
        search(name, answer)


def test_results_count_though_some_of_the_engines_that_were_asked_had_troubles():
    assert search("searxng", ANSWERS["searxng"] | {"unresponsive_engines": [["google", "CAPTCHA"]]})[0] == [FOUND]


def test_one_failing_query_fails_the_call_after_all_have_ended():
    async def first_fails(received, writer):
        if received.body["q"] == "a":
            http.send(writer, 401, b"{}")
        else:
            await asyncio.sleep(0.05)
            http.send(writer, 200, json.dumps(ANSWERS["serper"]).encode())

    with http.ChatServer(first_fails) as server:
        engine = engine_of("serper", server.url)
        with pytest.raises(ToolError, match="status 401"):
            asyncio.run(engine.search(["a", "b"], 3))
    assert engine.calls == 2


def test_it_is_a_search_engine_that_is_not_local_and_does_not_show_its_key():
    with http.ChatServer(http.fails(500, "x")) as server:
        url = server.url
    engine = engine_of("serpapi", url)
    assert isinstance(engine, SearchEngine)
    assert not engine.is_local
    with raises("server.failed") as caught:
        asyncio.run(engine.search(["who ?"], 3))
    assert url in str(caught.value)
    assert KEY not in str(caught.value) + repr(engine)


@pytest.mark.parametrize(
    ("name", "url", "key", "named"),
    [
        (
            "serper",
            "https://x/",
            "",
            "there is none. Set the environment variable SERPER_API_KEY",
        ),
        ("serpapi", "https://x/", "", "SERPAPI_API_KEY"),
        ("searxng", "", "", "as the url of a server"),
        ("searxng", "https://me:pw@x/", "", "as the url of a server"),
        ("serper", "https://x/", "a b", "API key"),
    ],
)
def test_settings_that_cannot_be_are_refused(name, url, key, named):
    with pytest.raises(ConfigError, match=named):
        WebEngine(name, replace(PROVIDERS[name], url=url), api_key=key)
