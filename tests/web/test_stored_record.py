"""A run's searches and pages, taken down and told again."""

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raising import raises

from evoseek.errors import PageError, ToolError
from evoseek.protocols import SearchEngine
from evoseek.types import Page, Passage
from evoseek.web.stored import Recording, Replay, StoredWeb


class Web:
    """An engine and fetcher that answers the n-th time with the n-th outcome of what is asked for."""

    is_local = False

    def __init__(self, **outcomes):
        self.outcomes, self.calls = {key: list(values) for key, values in outcomes.items()}, 0

    def _next(self, key):
        self.calls += 1
        outcome = self.outcomes[key].pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def search(self, queries, k):
        await asyncio.sleep(0)
        return [self._next(query)[:k] for query in queries]

    async def fetch(self, url):
        await asyncio.sleep(0)
        return self._next(url)


KALO = [Passage("https://x/kalo", "https://x/kalo", "Kalo", "Its mayor\x00 \ud800"), Passage("v", "v", "", "")]
PAGE = Page("https://x/kalo?2", "Kalo", "Meri is the mayor.")
DOWN, GONE = ToolError("down \ud800"), PageError("gone \ud800")


def said(call):
    """What a call gives, or the kind and text of its error."""
    try:
        return asyncio.run(call)
    except (ToolError, PageError) as error:
        return type(error), str(error)


def record(path, web, asks):
    recording = Recording(path, {})
    stored = StoredWeb(recording, engine=web, fetcher=web)
    results = [said(ask(stored)) for ask in asks]
    recording.close()
    return results


def replay(path, asks):
    replay = Replay(path)
    results = [said(ask(StoredWeb(replay))) for ask in asks]
    replay.close()
    return results


def searches(*queries, k=2):
    return lambda web: web.search(queries, k)


def opens(url):
    return lambda web: web.fetch(url)


def test_a_replay_says_what_the_run_was_told_failures_at_their_times_included(tmp_path):
    asks = [
        *(searches("kalo"), searches("none"), searches("kalo", k=1), searches("kalo", "none")),
        *(opens("page"), opens("gone"), opens("gone"), opens("down"), opens("down"), opens("down")),
        *(searches("down", "later"), searches("later"), searches("down", "later"), searches("later")),
    ]
    web = Web(
        kalo=[KALO, KALO],
        none=[[]],
        page=[PAGE],
        gone=[GONE],
        down=[DOWN, DOWN, PAGE, DOWN, KALO],
        later=[DOWN, KALO],
    )
    told = record(tmp_path / "run", web, asks)
    assert told == [
        *([KALO], [[]], [KALO[:1]], [KALO, []]),
        *(PAGE, (PageError, str(GONE)), (PageError, str(GONE)), (ToolError, str(DOWN)), (ToolError, str(DOWN)), PAGE),
        *((ToolError, str(DOWN)), [KALO], [KALO, KALO], [KALO]),
    ]
    assert replay(tmp_path / "run", asks) == told


def test_what_was_answered_is_not_asked_again_also_when_the_run_is_gone_on_with(tmp_path):
    web = Web(kalo=[KALO, []], gone=[GONE, PAGE])
    for _ in range(2):
        assert record(tmp_path / "run", web, [searches("kalo"), searches("kalo"), opens("gone")])[0] == [KALO]
    assert web.calls == 2


def test_a_record_made_with_other_settings_is_replayed_and_not_gone_on_with(tmp_path):
    told = record(tmp_path / "run", Web(kalo=[KALO]), [searches("kalo")])
    for _ in range(2):
        with raises(
            "web.record_other_settings", match=r"was begun with web\.url = None, .* Give web\.record another file"
        ):
            Recording(tmp_path / "run", {"web.url": "u"})
    assert replay(tmp_path / "run", [searches("kalo")]) == told


def test_of_calls_at_once_all_are_told_the_first_answer(tmp_path):
    recording = Recording(tmp_path / "run", {})
    engine = StoredWeb(recording, engine=Web(kalo=[KALO, [], []]))
    assert asyncio.run(engine.search(["kalo"] * 3, 2)) == [KALO] * 3
    recording.close()
    assert replay(tmp_path / "run", [searches("kalo")] * 4) == [[KALO]] * 4


def test_who_asked_first_fails_first_also_if_another_one_failed_sooner(tmp_path):
    """Of three at once the second fails, before the first is answered."""

    class Crossed:
        is_local = False
        calls = 0

        async def fetch(self, url):
            self.calls += 1
            if self.calls == 2:
                raise DOWN
            await asyncio.sleep(0.01)
            return PAGE

    async def three(fetcher):
        pages = await asyncio.gather(*(fetcher.fetch("page") for _ in range(3)), return_exceptions=True)
        return [isinstance(page, ToolError) for page in pages]

    recording = Recording(tmp_path / "run", {})
    told = asyncio.run(three(StoredWeb(recording, fetcher=Crossed())))
    recording.close()
    assert told == [False, True, False]
    assert asyncio.run(three(StoredWeb(Replay(tmp_path / "run")))) == told


def test_what_a_reader_took_from_a_page_is_told_again_by_page_task_and_key(tmp_path):
    class Reader:
        calls = 0

        async def read(self, page, *, task, key):
            self.calls += 1
            return f"{self.calls} {task} {key} {page.title}"

    async def read(reader):
        asked = [("who?", "a"), ("who?", "b"), ("when?", "a"), ("who?", "a")]
        return [await reader.read(PAGE, task=task, key=key) for task, key in asked]

    recording = Recording(tmp_path / "run", {})
    told = asyncio.run(read(StoredWeb(recording, reader=Reader())))
    recording.close()
    assert told == ["1 who? a Kalo", "2 who? b Kalo", "3 when? a Kalo", "1 who? a Kalo"]
    replay = Replay(tmp_path / "run")
    assert asyncio.run(read(StoredWeb(replay))) == told
    with raises("web.not_recorded", match="has no answer to reading"):
        asyncio.run(StoredWeb(replay).read(PAGE, task="where?", key="a"))


def test_what_was_not_asked_in_the_run_is_an_error_that_names_it(tmp_path):
    record(tmp_path / "run", Web(kalo=[KALO]), [searches("kalo")])
    for ask, key in ((searches("meri"), '["meri", 2]'), (searches("kalo", k=3), '["kalo", 3]'), (opens("u"), '"u"')):
        ((kind, text),) = replay(tmp_path / "run", [ask])
        assert kind is ToolError
        assert f"{tmp_path / 'run'} has no answer to " in text
        assert key in text


def test_a_replay_is_local_and_waits_for_nothing(tmp_path):
    web = Web(kalo=[KALO], page=[PAGE])
    record(tmp_path / "run", web, [searches("kalo"), opens("page")])
    replay = Replay(tmp_path / "run")
    assert isinstance(StoredWeb(replay), SearchEngine)
    assert StoredWeb(replay).is_local
    with pytest.raises(StopIteration):  # it ends without ever being suspended
        StoredWeb(replay).fetch("page").send(None)
    recording = Recording(tmp_path / "other", {})
    assert not StoredWeb(recording, engine=web).is_local
    assert not StoredWeb(recording, fetcher=web).is_local


def test_a_cancelled_call_leaves_no_trace(tmp_path):
    class Hangs:
        is_local = False

        async def fetch(self, url):
            await asyncio.sleep(60)

    recording = Recording(tmp_path / "run", {})
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(StoredWeb(recording, fetcher=Hangs()).fetch("page"), 0.01))
    assert recording._store.rows("SELECT * FROM answers WHERE key LIKE 'page%'") == []


def test_there_has_to_be_a_record(tmp_path):
    with raises("web.no_record", match=re.escape(f"no record of a run at {tmp_path / 'run'}")):
        Replay(tmp_path / "run")
    assert not (tmp_path / "run").exists()


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["fails", "gone", "found"])), max_size=20))
def test_any_order_of_failures_is_told_again(tmp_path_factory, outcomes):
    path = tmp_path_factory.mktemp("record") / "run"
    made = {"fails": DOWN, "gone": GONE}
    web = Web(**{key: [made.get(o, PAGE) for k, o in outcomes if k == key] for key in "abc"})
    asks = [opens(key) for key, _ in outcomes]
    told = record(path, web, asks)
    assert replay(path, asks) == told
