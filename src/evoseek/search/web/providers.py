"""Web search providers, each described by the shape of its requests and answers; and their HTTP client, with a rate
limit, a budget and a circuit breaker."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import httpx2
from aiolimiter import AsyncLimiter

from evoseek.errors import ConfigError, ToolError
from evoseek.http.limits import CircuitBreaker, Retry, TransientError
from evoseek.http.server import Server, check_url, json_of
from evoseek.search.engines import for_each
from evoseek.types import Passage

T = TypeVar("T")
Option = str | int | bool

MAX_QUERY_WORDS, MAX_QUERY = 50, 400
"""Maximum number of words and characters of a query that are sent: some providers refuse more."""

MAX_URL, MAX_TITLE, MAX_SNIPPET = 2000, 300, 2000
"""Maximum number of characters of a result; a result with a longer URL is left out."""

_BURST_S = 0.1  # the requests of so many seconds may be made in a burst
_UNSHOWN = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]+")  # white space, control characters, half characters


@dataclass(frozen=True, slots=True)
class JsonApi:
    """A search API that answers in JSON.

    Attributes:
        url: where requests go; "" if every user has another one
        results: where the list of results is in the answer: names of fields, with dots between
        title, link, snippet: names of a result's fields
        method: how it is asked; options go into the URL (GET) or into a JSON body (POST)
        query: name of the option with the query
        count, most: name of the option with the number of results ("": there is none), and its highest value
        options: sent with every request
        key_env: the environment variable that usually holds the key; "" if there is no key
        key_header, key_prefix: the header with the key, and what stands before it there
        key_option: the option with the key, where it is in no header
        answered: a field without which an answer that has no list of results is a failure; "": always
        troubles: a field that says, unless it is empty, that finding nothing is a failure
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
"""Those of providers.toml, by name."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """The limits of calls to a provider.

    With these defaults, calls to a provider that is down stop within five seconds of the first of ten calls, even if it
    hangs: the tenth request is made within a second, and fails after timeout_s.

    Attributes:
        rate_per_s: requests a second, repetitions included, of this process
        concurrency: calls at once; one that waits to be retried is under way
        budget: requests over the client's life, repetitions included; None is no limit
        attempts: how often a call is made at most
        timeout_s: seconds for one attempt
        wait_s, max_wait_s: as of `Retry`
        failures, pause_s: as of `CircuitBreaker`
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


class WebClient:
    """Requests to a provider, for JSON. `calls` counts them.

    They are made and retried as `Server` says, within the limits; a body that is not JSON is a transient failure.
    Raises ConfigError for an api_key that no header can hold.
    """

    def __init__(self, name: str, *, api_key: str, limits: CallLimits) -> None:
        self._name, self._api_key, self._limits, self.calls = name, api_key, limits, 0
        self._server = Server(
            setting="url",
            api_key=api_key,
            timeout_s=limits.timeout_s,
            retry=Retry(limits.attempts, limits.wait_s, limits.max_wait_s),
            concurrency=limits.concurrency,
        )
        self.breaker = CircuitBreaker(limits.failures, limits.pause_s)
        self._limiter: tuple[asyncio.AbstractEventLoop, AsyncLimiter] | None = None

    async def call(self, read: Callable[[Any], T], method: str, url: str, **request: Any) -> T:
        """The value that `read` returns for the JSON reply to a request (in the form of httpx2).

        `read` may raise TransientError for a reply that is a transient failure, and ToolError. Raises ToolError.
        """

        async def attempt(client: httpx2.AsyncClient) -> T:
            await self._turn()
            await self.breaker.ready()  # since the breaker may have opened meanwhile
            if self.calls == self._limits.budget:
                raise ToolError(f"the budget of {self.calls} requests is spent. Raise it, or end here.")
            with self.breaker.call():
                self.calls += 1
                reply = await self._server.send(client, method, url, **request)
                if reply.is_success:
                    return read(json_of(reply.body, secret=self._api_key))
                what = self._server.refusal(reply)
                raise ToolError(f"{what}. It is not retried: correct the key, the url or the options.")

        try:
            await self.breaker.ready()
            return await self._server.call(attempt)
        except ToolError as error:
            raise ToolError(f"There is no answer of {self._name}: {error}") from error

    def shown(self, text: object) -> str:
        return self._server.shown(text)

    async def _turn(self) -> None:
        """Wait until the rate allows a request. Raises ToolError while the provider is down."""
        await self.breaker.ready()
        loop = asyncio.get_running_loop()
        if self._limiter is None or self._limiter[0] is not loop:
            burst = max(1.0, self._limits.rate_per_s * _BURST_S)
            self._limiter = loop, AsyncLimiter(burst, burst / self._limits.rate_per_s)
        await self._limiter[1].acquire()


class WebEngine:
    """Implements `SearchEngine` by a provider: one request for each query. A result's id is its URL.

    Results without a URL of http or https are left out, and texts are one line of bounded length.
    """

    is_local = False

    def __init__(self, api: JsonApi, client: WebClient, api_key: str) -> None:
        self.client, self._api, self._options = client, api, dict(api.options)
        self._headers = {api.key_header: f"{api.key_prefix}{api_key}"} if api.key_header else {}
        if api.key_option:
            self._options[api.key_option] = api_key

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k results, in the provider's order. Raises ToolError."""
        return await for_each(queries, lambda query: self._search(query, k))

    async def _search(self, query: str, k: int) -> list[Passage]:
        query = " ".join(_line(query, MAX_QUERY).split()[:MAX_QUERY_WORDS])
        if not query:
            return []
        api, options = self._api, {**self._options, self._api.query: query}
        if api.count:
            options[api.count] = min(k, api.most)
        sent = {"params": options} if api.method == "GET" else {"json": options}
        return (await self.client.call(self._results, api.method, api.url, headers=self._headers, **sent))[:k]

    def _results(self, answer: Any) -> list[Passage]:
        """The results in an answer. Raises TransientError or ToolError if it neither has results nor says that there
        are none."""
        api = self._api
        found, troubles = _at(answer, api.results), _at(answer, api.troubles)
        if not found and troubles:
            raise TransientError(f"it found nothing, and had troubles: {self.client.shown(troubles)}")
        if found is None and api.answered and _at(answer, api.answered) is not None:
            return []
        if not isinstance(found, list):
            raise ToolError(
                f"expected a list of results as {api.results!r} in its answer, but got {self.client.shown(answer)}. "
                "Check the url, and the account at the provider."
            )
        return [passage for result in found if (passage := self._passage(result)) is not None]

    def _passage(self, result: Any) -> Passage | None:
        url = _at(result, self._api.link)
        if not isinstance(url, str) or not _is_web_url(url):
            return None
        title, snippet = (_at(result, name) for name in (self._api.title, self._api.snippet))
        return Passage(url, url, _line(title, MAX_TITLE), _line(snippet, MAX_SNIPPET))


def make_provider(
    name: str,
    *,
    api_key: str = "",
    url: str = "",
    limits: CallLimits | None = None,
    api: JsonApi | None = None,
) -> WebEngine:
    """The engine of one of `PROVIDERS`, or, with `api`, of another one that is called `name` in errors.

    `url` replaces the provider's own. Raises ConfigError for an unknown name, a missing key or url, and limits that
    allow no call.
    """
    if api is None and name not in PROVIDERS:
        raise ConfigError(f"There is no search provider {name!r}. Expected one of {', '.join(PROVIDERS)}, or an api.")
    api = api or PROVIDERS[name]
    api = replace(api, url=url or api.url)
    if (api.key_header or api.key_option) and not api_key:
        where = f" Set the environment variable {api.key_env} to it." if api.key_env else ""
        raise ConfigError(f"The search provider {name} needs an API key, and there is none.{where}")
    check_url(api.url, setting="url", example="http://localhost:8888/search")
    client = WebClient(f"the search provider {name} at {api.url}", api_key=api_key, limits=limits or CallLimits())
    return WebEngine(api, client, api_key)


def _at(value: Any, path: str) -> Any:
    """What is at a path of names with dots between; None if there is no such thing."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _line(text: object, most: int) -> str:
    """One line of plain text; "" of what is no text."""
    return _UNSHOWN.sub(" ", text).strip()[:most].rstrip() if isinstance(text, str) else ""


def _is_web_url(url: str) -> bool:
    if len(url) > MAX_URL or _UNSHOWN.search(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        return False
