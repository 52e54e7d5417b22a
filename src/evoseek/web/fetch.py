"""Opens web pages safely, even hostile ones, and politely."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from weakref import WeakKeyDictionary

import httpcore2
import httpx2

from evoseek.errors import PageError, ToolError
from evoseek.http.body import BodyError, CutBodyError, read_body
from evoseek.http.limits import Retry, TransientError, seconds_of
from evoseek.types import Page
from evoseek.web.address import AddressRules, PinnedBackend, Resolver, check_url, port_of, resolve
from evoseek.web.extract import TYPES, Extractor
from evoseek.web.robots import MAX_ROBOTS, HostThrottle, Robots

MAX_REDIRECTS = 5
"""Maximum number of redirects for one page, and for one robots.txt."""

MAX_HEADERS = 32 * 1024
"""Maximum number of bytes of a response's header fields."""

_ERROR_BODY = 64 * 1024
_MAX_PAUSE_S = 3600.0  # the longest wait that a server can ask for
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PASSING = frozenset({408, 425, 429})  # and every 5xx
_BROKEN = (
    *(httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError),
    CutBodyError,
)

MAX_WORDS = 120
"""Maximum number of words of a challenge; a longer page is about challenges."""

_HEAD = 64 * 1024
_STATUSES = frozenset({401, 403, 405, 406, 429, 503})  # of challenges, 200 apart

_CHALLENGES = tomllib.loads(Path(__file__).with_name("challenges.toml").read_text(encoding="utf-8"))
_WORDS = {reason: re.compile("|".join(found), re.IGNORECASE) for reason, found in _CHALLENGES["words"].items()}


class SafeFetcher:
    """A `Fetcher`. No URL, name server, redirect or page can make it do any of this:

    - connect to an address that is not public, or to a port or host that `rules` do not allow. The connection goes to
      exactly the checked address (`PinnedBackend`); every redirect is checked again, and there are at most
      `MAX_REDIRECTS`. A user, a password, a cookie or a referrer is never sent;
    - open more than `concurrency` pages concurrently (others queue), or take longer than `timeout_s` seconds from its
      turn to the page's text, including the wait for the host, robots.txt, redirects and repetitions;
    - take more than `max_bytes` (as http.body counts them, before and after unpacking), more than body.MAX_RATIO times
      the received bytes, more than `MAX_HEADERS`, or a content type that is not among extract.TYPES;
    - open what a site's robots.txt forbids, or pages of a site whose Crawl-delay is above robots.MAX_DELAY_S (unless
      `obey_robots` is false); make more than `per_host` concurrent requests to a host, or one sooner than `interval_s`
      seconds (or its Crawl-delay, or its Retry-After) after the last. All requests count, also for robots.txt.

    Transient failures (no or a broken connection, the status 408, 425, 429 or 5xx) are retried (`Retry`, with its
    `attempts` and `wait_s`), and then raise ToolError; a challenge instead of a page raises it immediately. A failure
    that every visitor would see is a PageError.

    No proxy is used, not even the environment's: it would resolve names itself, unchecked.

    Connections are closed after each page, so only the extractor, which may be shared, must be closed.
    """

    is_local = False

    def __init__(
        self,
        rules: AddressRules,
        extractor: Extractor,
        *,
        agent: str = "evoseek/0.1",
        timeout_s: float = 15.0,
        max_bytes: int = 2_000_000,
        concurrency: int = 64,
        per_host: int = 2,
        interval_s: float = 1.0,
        attempts: int = 3,
        wait_s: float = 0.5,
        obey_robots: bool = True,
        resolver: Resolver = resolve,
    ) -> None:
        self._rules, self._extractor, self._agent, self._resolver = rules, extractor, agent, resolver
        self._timeout_s, self._max_bytes = timeout_s, max_bytes
        self._robots = Robots(extractor, agent) if obey_robots else None
        self._throttle = HostThrottle(interval_s, per_host)
        self._concurrency = concurrency
        self._places = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]()
        self._retry = Retry(attempts, wait_s, max_wait_s=timeout_s)
        self._tls = httpcore2.default_ssl_context()

    async def fetch(self, url: str) -> Page:
        """Return the page at an address. Raises PageError if no client could read it, ToolError if fetching failed."""
        target = check_url(url, self._rules)
        async with self._places.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._concurrency)):
            return await self._visit(target)

    async def _visit(self, target: httpx2.URL) -> Page:
        try:
            async with asyncio.timeout(self._timeout_s), self._connections() as pool:
                return await self._page(_Visit(pool, time.monotonic() + self._timeout_s), target)
        except TimeoutError as error:
            raise ToolError(
                f"The page {target} was not opened within {self._timeout_s:g} seconds, the wait for its host included. "
                "Ask again later, or raise the fetcher's time limit."
            ) from error

    def _connections(self) -> httpcore2.AsyncConnectionPool:
        backend = PinnedBackend(self._rules, self._resolver)
        return httpcore2.AsyncConnectionPool(ssl_context=self._tls, network_backend=backend)

    async def _page(self, visit: _Visit, url: httpx2.URL) -> Page:
        reply = await self._follow(visit, url)
        if not 200 <= reply.status < 300:
            raise PageError(f"The page {reply.url} cannot be read: {_named(reply.status)}. Choose another page.")
        kind, charset = _content_type(reply.headers)
        title, text = await self._extractor.page(reply.body, kind, charset)
        self._refuse_challenge(reply, f"{title}\n{text}")
        if not text:
            raise PageError(f"The page {reply.url} has no text, at least none without JavaScript. Choose another page.")
        return Page(str(reply.url), title, text)

    async def _follow(self, visit: _Visit, url: httpx2.URL, *, is_page: bool = True) -> _PageReply:
        """Follow a URL to the end of its redirects. Each site on the way is asked for its robots.txt, unless a
        robots.txt is read."""
        for _ in range(MAX_REDIRECTS + 1):
            delay_s = 0.0
            if self._robots is not None and is_page:
                delay_s = await self._robots.delay_s(url, partial(self._robots_txt, visit))
            try:
                reply = await self._retry.run(partial(self._request, visit, url, delay_s, is_page))
            except TransientError as error:
                raise ToolError(
                    f"The page {url} was not opened: all {self._retry.attempts} attempts failed, at last because "
                    f"{error}. Ask again later.",
                    code="web.failed",
                ) from error
            target = reply.headers.get("location")
            if reply.status not in _REDIRECTS or target is None:
                return reply
            url = check_url(target, self._rules, base=url)
        raise PageError(f"The page redirects more than {MAX_REDIRECTS} times, at last to {url}. Choose another page.")

    async def _robots_txt(self, visit: _Visit, url: httpx2.URL) -> tuple[int, bytes]:
        reply = await self._follow(visit, url, is_page=False)
        return reply.status, reply.body

    async def _request(self, visit: _Visit, url: httpx2.URL, delay_s: float, is_page: bool) -> _PageReply:
        """Make one request, when it is its turn. Raises TransientError for transient failures."""
        host = url.raw_host.decode()
        async with self._throttle.turn(host, delay_s=delay_s, until=visit.until):
            try:
                target = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=port_of(url), target=url.raw_path)
                async with visit.pool.stream("GET", target, headers=self._headers(url)) as response:
                    reply = await self._read(response, url, is_page)
            except BodyError as error:
                raise PageError(f"The page {url} {error}. Choose another page.") from error
            except _BROKEN as error:
                if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                    what = f"The page {url} cannot be read: its host proves another identity. Choose another page."
                    raise PageError(what) from error
                raise TransientError(f"the connection failed ({type(error).__name__} {str(error)[:200]})") from error
        self._refuse_challenge(reply)
        if reply.status in _PASSING or reply.status >= 500:
            self._throttle.pause(host, min(seconds_of(reply.headers.get("retry-after", "")), _MAX_PAUSE_S))
            raise TransientError(f"the server replied with status {_named(reply.status)}")
        return reply

    def _headers(self, url: httpx2.URL) -> list[tuple[bytes, bytes]]:
        return [
            (b"Host", url.netloc),
            (b"User-Agent", self._agent.encode()),
            (b"Accept", ", ".join(sorted(TYPES)).encode()),
            (b"Accept-Encoding", b"gzip"),
        ]

    async def _read(self, response: httpcore2.Response, url: httpx2.URL, is_page: bool) -> _PageReply:
        if sum(len(name) + len(value) for name, value in response.headers) > MAX_HEADERS:
            raise PageError(f"The page {url} has more than {MAX_HEADERS} bytes of header fields. Choose another page.")
        headers = httpx2.Headers(response.headers)
        coding = headers.get("content-encoding", "").strip().lower()
        if response.status in _REDIRECTS:
            return _PageReply(url, response.status, headers, b"")
        if response.status >= 300:
            body = await read_body(response.aiter_stream(), coding, _ERROR_BODY, cut=True)
            return _PageReply(url, response.status, headers, body)
        most = self._max_bytes if is_page else MAX_ROBOTS
        if is_page:
            kind, _ = _content_type(headers)
            if kind not in TYPES:
                shown = f"of the type {kind[:80]!r}" if kind else "of no stated type"
                raise PageError(f"The page {url} is {shown}, which cannot be read. Choose another page.")
        body = await read_body(response.aiter_stream(), coding, most, cut=not is_page)
        return _PageReply(url, response.status, headers, body)

    def _refuse_challenge(self, reply: _PageReply, text: str | None = None) -> None:
        if reason := blocked_reason(reply.status, reply.headers, reply.body, text):
            raise ToolError(
                f"The site of {reply.url} served a bot challenge ({_named(reply.status)}): {reason}. Add it to "
                "browse.deny, or send it fewer requests."
            )


@dataclass(frozen=True, slots=True)
class _Visit:
    """The state of opening one page: its connections and its deadline (on time.monotonic())."""

    pool: httpcore2.AsyncConnectionPool
    until: float


@dataclass(frozen=True, slots=True)
class _PageReply:
    url: httpx2.URL
    status: int
    headers: httpx2.Headers
    body: bytes


def _content_type(headers: httpx2.Headers) -> tuple[str, str]:
    """Return the content type and the charset, "" if missing."""
    kind, *parameters = headers.get("content-type", "").split(";")
    named = (parameter.strip().partition("=") for parameter in parameters)
    charset = next((value for name, _, value in named if name.strip().lower() == "charset"), "")
    return kind.strip().lower(), charset.strip(" \"'").lower()


def _named(status: int) -> str:
    try:
        return f"{status} ({HTTPStatus(status).phrase})"
    except ValueError:
        return str(status)


def blocked_reason(status: int, headers: Mapping[str, str], body: bytes, text: str | None = None) -> str | None:
    """Return why a response is a challenge to presumed robots, or None for a page.

    `headers` have names in lower case. `text` is the page's extracted text; without it only a response whose status
    refuses the page is judged. Deciding are a header of a service; in the first 64 KiB of a short page, a mark of such
    a service or the words of a challenge. An application that shows nothing without JavaScript ("You need to enable
    JavaScript to run this app") is no challenge: every visitor sees this text.
    """
    if text is None and status not in _STATUSES:
        return None
    for name, (value, reason) in _CHALLENGES["headers"].items():
        if name in headers and headers[name].lower().startswith(value):
            return reason
    if text is not None and len(text.split(None, MAX_WORDS)) > MAX_WORDS:
        return None
    source = body[:_HEAD].lower()
    if reason := next((reason for mark, reason in _CHALLENGES["marks"].items() if mark.encode() in source), None):
        return reason
    shown = source.decode(errors="replace") if text is None else text[:_HEAD]
    return next((reason for reason, pattern in _WORDS.items() if pattern.search(shown)), None)
