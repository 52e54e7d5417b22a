"""Web search providers, described by the shape of their requests and answers, and their HTTP client, with a rate limit,
a budget and a circuit breaker."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx2
from aiolimiter import AsyncLimiter

from evoseek.errors import ConfigError, ToolError
from evoseek.http.limits import CircuitBreaker, Retry, TransientError
from evoseek.http.server import Server, check_url, json_of
from evoseek.search.calling import for_each
from evoseek.types import Passage

Option = str | int | bool

MAX_QUERY_WORDS, MAX_QUERY = 50, 400
"""Maximum number of words and characters of a sent query: some providers refuse more."""

MAX_URL, MAX_TITLE, MAX_SNIPPET = 2000, 300, 2000
"""Maximum number of characters of a result; a result with a longer URL is left out."""

_BURST_S = 0.1  # seconds whose requests may come in a burst
_UNSHOWN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")  # white space, control characters, half characters


@dataclass(frozen=True, slots=True)
class JsonApi:
    """A search API that answers in JSON.

    Attributes:
        url: where requests go; "" if every user has a different one results: path of the list of results in the answer:
        names of fields, joined by dots title, link, snippet: names of a result's fields method: of requests; options go
        into the URL (GET) or into a JSON body (POST) query: name of the option with the query count, most: name of the
        option with the number of results ("": none), and its highest value options: sent with every request key_env:
        the environment variable that usually holds the key; "" if there is no key key_header, key_prefix: the header
        with the key, and the key's prefix key_option: the option with the key, if it is in no header answered: a field
        without which an answer without a list of results is a failure; "": always troubles: a field that, unless empty,
        makes finding nothing a failure
    """

    url: str
    results: str
    title: str = "title"
    link: str = "url"
    snippet: str = "snippet"
    method: Literal["GET", "POST"] = "GET"
    query: str = "q"
    count: str = ""
    most: int = 100
    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    key_env: str = ""
    key_header: str = ""
    key_prefix: str = ""
    key_option: str = ""
    answered: str = ""
    troubles: str = ""


PROVIDERS: Mapping[str, JsonApi] = {
    name: JsonApi(**table) for name, table in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}
"""The providers of providers.toml, by name."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of calls to a provider.

    With these defaults, calls to a provider that is down stop within five seconds of the first of ten, even if it
    hangs: the tenth request is made within a second, and fails after timeout_s.

    Attributes:
        rate_per_s: requests a second, repetitions included, of this process concurrency: concurrent calls, those that
        wait for a retry included budget: requests over the engine's life, repetitions included; None is no limit
        attempts: maximum number of attempts of a call timeout_s: seconds for one attempt wait_s, max_wait_s: as of
        `Retry` failures, pause_s: as of `CircuitBreaker`
    """

    rate_per_s: float = 10.0
    concurrency: int = 32
    budget: int | None = None
    attempts: int = 4
    timeout_s: float = 4.0
    wait_s: float = 0.5
    max_wait_s: float = 20.0
    failures: int = 10
    pause_s: float = 10.0


class WebEngine:
    """A `SearchEngine` by a search API, called `name` in errors: one request for each query. A result's id is its URL.

    Requests are made and retried as in `Server`, within the limits; `calls` counts them. A reply that is not JSON is a
    transient failure. Results without a URL of http or https are left out, and texts are one line of bounded length.
    Raises ConfigError for a missing or unusable api_key or url.
    """

    is_local = False

    def __init__(self, name: str, api: JsonApi, *, api_key: str = "", limits: CallLimits | None = None) -> None:
        if (api.key_header or api.key_option) and not api_key:
            where = f" Set the environment variable {api.key_env} to it." if api.key_env else ""
            raise ConfigError(f"The search provider {name} needs an API key, and there is none.{where}")
        check_url(api.url, setting="url", example="http://localhost:8888/search")
        self._name, self._api, self._api_key, self._limits = name, api, api_key, limits or CallLimits()
        self._headers = {api.key_header: f"{api.key_prefix}{api_key}"} if api.key_header else {}
        self._options = {**api.options, **({api.key_option: api_key} if api.key_option else {})}
        self._server = Server(
            setting="url",
            api_key=api_key,
            timeout_s=self._limits.timeout_s,
            retry=Retry(self._limits.attempts, self._limits.wait_s, self._limits.max_wait_s),
            concurrency=self._limits.concurrency,
        )
        self.breaker = CircuitBreaker(self._limits.failures, self._limits.pause_s)
        self.calls = 0
        self._limiter: tuple[asyncio.AbstractEventLoop, AsyncLimiter] | None = None

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k results for each query, in the provider's order. Raises ToolError."""
        return await for_each(queries, lambda query: self._search(query, k))

    async def _search(self, query: str, k: int) -> list[Passage]:
        query = " ".join(_line(query, MAX_QUERY).split()[:MAX_QUERY_WORDS])
        if not query:
            return []
        options = {**self._options, self._api.query: query}
        if self._api.count:
            options[self._api.count] = min(k, self._api.most)
        sent = {"params": options} if self._api.method == "GET" else {"json": options}
        try:
            await self.breaker.ready()
            return (await self._server.call(lambda client: self._attempt(client, sent)))[:k]
        except ToolError as error:
            where = f"the search provider {self._name} at {self._api.url}"
            raise ToolError(f"There is no answer of {where}: {error}", code=error.code) from error

    async def _attempt(self, client: httpx2.AsyncClient, sent: Mapping[str, Any]) -> list[Passage]:
        """Make one request when the limits allow it, and return the results."""
        await self._turn()
        await self.breaker.ready()  # since the breaker may have opened meanwhile
        if self.calls == self._limits.budget:
            raise ToolError(f"the budget of {self.calls} requests is spent. Raise web.budget.", code="web.budget")
        with self.breaker.call():
            self.calls += 1
            reply = await self._server.send(client, self._api.method, self._api.url, headers=self._headers, **sent)
            if reply.is_success:
                return self._results(json_of(reply.body, secret=self._api_key))
            what = self._server.refusal(reply)
            raise ToolError(f"{what}. This is not retried. Correct the key, the url or the options.")

    async def _turn(self) -> None:
        """Wait until the rate allows a request. Raises ToolError while the provider is down."""
        await self.breaker.ready()
        loop = asyncio.get_running_loop()
        if self._limiter is None or self._limiter[0] is not loop:
            burst = max(1.0, self._limits.rate_per_s * _BURST_S)
            self._limiter = loop, AsyncLimiter(burst, burst / self._limits.rate_per_s)
        await self._limiter[1].acquire()

    def _results(self, answer: Any) -> list[Passage]:
        """Return the results in an answer. Raises TransientError or ToolError if it neither has results nor says that
        there are none."""
        api = self._api
        found, troubles = _at(answer, api.results), _at(answer, api.troubles)
        if not found and troubles:
            raise TransientError(f"it found nothing, and had troubles: {self._server.shown(troubles)}")
        if found is None and api.answered and _at(answer, api.answered) is not None:
            return []
        if not isinstance(found, list):
            raise ToolError(
                f"expected a list of results as {api.results!r} in its answer, but got {self._server.shown(answer)}. "
                "Check the url, and the account at the provider."
            )
        return [passage for result in found if (passage := self._passage(result)) is not None]

    def _passage(self, result: Any) -> Passage | None:
        url = _at(result, self._api.link)
        if not isinstance(url, str) or not _is_web_url(url):
            return None
        title, snippet = (_at(result, name) for name in (self._api.title, self._api.snippet))
        return Passage(url, url, _line(title, MAX_TITLE), _line(snippet, MAX_SNIPPET))


def _at(value: Any, path: str) -> Any:
    """Return the value at a path of names joined by dots, or None."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _line(text: object, most: int) -> str:
    """Return one line of plain text; "" for anything but text."""
    return _UNSHOWN.sub(" ", text).strip()[:most].rstrip() if isinstance(text, str) else ""


def _is_web_url(url: str) -> bool:
    if len(url) > MAX_URL or _UNSHOWN.search(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
