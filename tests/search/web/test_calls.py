"""The engine and the fetcher for the web, from their settings."""

from contextlib import ExitStack

from evoseek.search.browse.fetch import SafeFetcher
from evoseek.search.browse.settings import BrowseSettings
from evoseek.search.web.cache import Cache
from evoseek.search.web.calls import web_calls
from evoseek.search.web.providers import WebEngine
from evoseek.search.web.settings import WebSettings

WEB = {
    "provider": "serper",
    "url": "http://127.0.0.1:9/search",
    "api_key_env": "MY_KEY",
    "options": {"gl": "fr"},
    "max_queries": 2,
    "rate_per_s": 7.0,
    "concurrency": 5,
    "budget": 90,
    "attempts": 2,
    "timeout_s": 3.0,
    "deadline_s": 33.0,
    "cache_days": 2.0,
}
BROWSE = {
    "max_urls": 4,
    "only_found": False,
    "page_words": 17,
    "timeout_s": 6.0,
    "concurrency": 8,
    "per_host": 3,
    "interval_s": 0.25,
    "attempts": 5,
    "wait_s": 0.75,
    "obey_robots": False,
    "proxy": "http://127.0.0.1:3128",
    "ports": [81],
    "allow": ["example.org"],
    "deny": ["bad.example.org"],
    "allow_private": ["127.0.0.1:8765"],
}


def test_a_provider_is_asked_from_here_through_a_cache_if_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    with ExitStack() as closing:
        engine, fetcher = web_calls(WebSettings(**WEB), BrowseSettings(**BROWSE), closing.callback)
        assert (type(engine), type(fetcher)) == (WebEngine, SafeFetcher)
        settings = WebSettings(**WEB, cache=str(tmp_path / "cache"))
        cached, _ = web_calls(settings, BrowseSettings(**BROWSE), closing.callback)
        assert isinstance(cached.answers, Cache)
