"""What sites ask of robots, at a real server."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import httpx2
import pytest

from evoseek.errors import PageError, ToolError
from evoseek.web import robots as robots_file
from evoseek.web.address import AddressRules
from evoseek.web.fetch import SafeFetcher
from evoseek.web.robots import HostThrottle, Robots

web = SimpleNamespace(**run_path(str(Path(__file__).parent / "page_server.py")))
PAGE = web.response("<html><body><p>Kalo is a town.</p></body></html>")


def txt(text, status=200):
    return web.response(text, status, kind="text/plain")


def visit(extractor, robots, paths, **settings):
    """What came of opening the paths one after the other, and the server."""

    async def run():
        routes = {"/robots.txt": robots, "/a": PAGE, "/private/b": PAGE, "/to": web.redirect("/private/b")}
        async with web.PageServer(routes | settings.pop("routes", {})) as server:
            usual = {"interval_s": 0, "wait_s": 0, "agent": "evoseek/0.1"}
            fetcher = SafeFetcher(AddressRules(allow_private=(server.at,)), extractor, **usual | settings)
            outcomes = await asyncio.gather(
                *(fetcher.fetch(server.url(path)) for path in paths), return_exceptions=True
            )
            return outcomes, server

    return asyncio.run(run())


RULES = txt("User-agent: *\nDisallow: /\n\nUser-agent: evoseek\nDisallow: /private/\n")


def test_what_is_forbidden_is_not_asked_for(extractor):
    (page, forbidden, redirected), server = visit(extractor, RULES, ["/a", "/private/b", "/to"])
    assert page.text == "Kalo is a town."
    for error in (forbidden, redirected):
        assert isinstance(error, PageError)
        assert "asks robots not to read it" in str(error)
    assert sorted(server.paths()) == ["/a", "/robots.txt", "/to"]  # robots.txt once, though all wanted it at once


def test_another_agent_has_other_rules_and_none_are_obeyed_if_told_so(extractor):
    (error,), _ = visit(extractor, RULES, ["/a"], agent="other/2.0")
    assert isinstance(error, PageError)
    (page,), server = visit(extractor, RULES, ["/private/b"], obey_robots=False)
    assert (page.text, server.paths()) == ("Kalo is a town.", ["/private/b"])


@pytest.mark.parametrize(
    "robots",
    [
        *(txt("", 404), txt("no", 403), txt(""), web.response("<html>Disallow: /</html>"), web.redirect("/robots.txt")),
        *(web.redirect("http://10.0.0.1/robots.txt"), txt("x" * 600_000), web.response("x", Content_Encoding="br")),
    ],
)
def test_a_robots_txt_that_there_is_not_forbids_nothing(extractor, robots):
    (page,), _ = visit(extractor, robots, ["/a"])
    assert page.text == "Kalo is a town."


def test_a_robots_txt_may_be_elsewhere_and_only_its_beginning_counts(extractor):
    (error,), _ = visit(extractor, web.redirect("/rules"), ["/private/b"], routes={"/rules": RULES})
    assert isinstance(error, PageError)
    start, end = "User-agent: *\n#", "\nDisallow: /\n"
    for length, forbidden in ((robots_file.MAX_ROBOTS, True), (robots_file.MAX_ROBOTS + len(end), False)):
        rules = txt(start.ljust(length - len(end), "#") + end)
        (outcome,), _ = visit(extractor, rules, ["/a"])
        assert isinstance(outcome, PageError) == forbidden


@pytest.mark.parametrize("status", [500, 503, 429])
def test_one_that_cannot_be_had_for_now_forbids_all_but_is_no_fact_about_the_page(extractor, status):
    robots = [txt("", status)] * 2 + [RULES]
    (error,), server = visit(extractor, robots[:1], ["/a"], attempts=2)
    assert isinstance(error, ToolError)
    assert server.paths() == ["/robots.txt"] * 2
    (page,), _ = visit(extractor, robots, ["/a"], attempts=3)
    assert page.text == "Kalo is a town."


def test_a_crawl_delay_is_kept_and_one_that_is_too_long_is_a_failure(extractor):
    robots = txt("User-agent: *\nCrawl-delay: 0.6\n")
    outcomes, server = visit(extractor, robots, ["/a", "/private/b", "/a"], timeout_s=1.1)
    first, second = (when for path, _, when in server.received if path != "/robots.txt")
    assert second - first >= 0.5
    (late,) = (outcome for outcome in outcomes if isinstance(outcome, Exception))
    assert isinstance(late, ToolError)
    assert "must not be called" in str(late) or "not opened within" in str(late)


@pytest.mark.parametrize("delay", ["1e300", "60.5", "60"])
def test_a_site_that_asks_for_too_long_a_crawl_delay_is_not_read(extractor, delay):
    (outcome,), server = visit(extractor, txt(f"User-agent: *\nCrawl-delay: {delay}\n"), ["/a"])
    if float(delay) > 60:
        assert isinstance(outcome, PageError)
        assert f"asks robots to wait {float(delay):g} seconds between requests" in str(outcome)
        assert server.paths() == ["/robots.txt"]
    else:
        assert outcome.text == "Kalo is a town."


def test_a_robots_txt_is_read_again_after_a_day(extractor, monkeypatch):
    read, clock = [], SimpleNamespace(now=1000.0)
    monkeypatch.setattr(robots_file, "time", SimpleNamespace(monotonic=lambda: clock.now))

    async def reader(url):
        read.append(str(url))
        return 200, b"User-agent: *\nCrawl-delay: 7"

    async def ask(path):
        return await robots.delay_s(httpx2.URL(f"https://example.org{path}"), reader)

    robots = Robots(extractor, "evoseek")
    for hours in (0, 23, 25):
        clock.now = 1000.0 + hours * 3600
        assert asyncio.run(ask("/a?b")) == 7
    assert read == ["https://example.org/robots.txt"] * 2


LONG = 1e9


def test_a_host_is_asked_at_intervals_and_hosts_do_not_wait_for_each_other():
    turns, begun = HostThrottle(0.2, 10), {"a": [], "b": []}

    async def ask(host):
        async with turns.turn(host, until=LONG):
            begun[host].append(time.monotonic())

    async def ask_all():
        await asyncio.gather(*map(ask, "aaabbb"))

    start = time.monotonic()
    asyncio.run(ask_all())
    for times in begun.values():
        assert times[0] - start < 0.2
        assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))


def test_so_many_at_once():
    turns, current, most = HostThrottle(0, 2), 0, 0

    async def ask():
        nonlocal current, most
        async with turns.turn("a", until=LONG):
            current += 1
            most = max(most, current)
            await asyncio.sleep(0.005)
            current -= 1

    async def ask_all():
        await asyncio.gather(*(ask() for _ in range(7)))

    for _ in range(2):  # in two event loops
        asyncio.run(ask_all())
    assert most == 2


def test_a_delay_and_a_pause_hold_for_the_next_and_refuse_whoever_cannot_wait():
    turns = HostThrottle(0, 1)

    async def ask(delay_s=0.0, within=LONG):
        async with turns.turn("a", delay_s=delay_s, until=time.monotonic() + within):
            return time.monotonic()

    async def ask_all():
        first = await ask(delay_s=0.05)
        assert await ask() - first >= 0.05
        turns.pause("a", 60)
        with pytest.raises(ToolError, match="must not be called for 60 more seconds"):
            await ask(within=15)

    asyncio.run(ask_all())


def test_who_gives_up_takes_nobodys_turn():
    turns = HostThrottle(0.3, 5)

    async def ask():
        async with turns.turn("a", until=LONG):
            return time.monotonic()

    async def ask_all():
        first = await ask()
        impatient = [asyncio.wait_for(ask(), 0.02) for _ in range(3)]
        *given_up, last = await asyncio.gather(*impatient, ask(), return_exceptions=True)
        assert [type(one) for one in given_up] == [TimeoutError] * 3
        assert last - first < 0.55

    asyncio.run(ask_all())
