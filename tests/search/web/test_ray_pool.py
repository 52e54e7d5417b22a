"""The pool of Ray actors on a double of Ray in this process; tests/extra/test_ray_pool.py has real ones."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from evoseek.errors import ConfigError, PageError, ToolError
from evoseek.search.web import ray_pool
from evoseek.search.web.ray_pool import RayPool
from evoseek.types import Page, Passage


class RayError(Exception):
    pass


class RayActorError(RayError):
    pass


class Ray:
    """Actors are objects in here, their calls tasks. An engine that raises SystemExit ends its actor."""

    exceptions = SimpleNamespace(RayError=RayError, RayActorError=RayActorError)

    def __init__(self):
        self.actors, self.cancelled, self.options, self.connected = [], 0, {}, True

    def is_initialized(self):
        return self.connected

    def init(self, **options):
        self.connected, self.options = True, options

    def shutdown(self):
        self.connected = False

    def remote(self, **options):
        return lambda kind: SimpleNamespace(remote=lambda *arguments: self.begin(kind(*arguments)))

    def begin(self, worker):
        actor = SimpleNamespace(alive=True, most=0, calls=0)
        for name in ("ready", "search", "fetch"):
            method = getattr(worker, name)
            setattr(actor, name, SimpleNamespace(remote=lambda *a, call=method: self.call(actor, call(*a))))
        self.actors.append(actor)
        return actor

    def call(self, actor, made):
        async def answer():
            actor.calls += 1
            actor.most = max(actor.most, actor.calls)
            try:
                if not actor.alive:
                    raise RayActorError("it was dead")
                try:
                    return json.loads(json.dumps(await made))  # nothing but plain data can pass
                except SystemExit as ended:
                    actor.alive = False
                    raise RayActorError("it died") from ended
            finally:
                actor.calls -= 1
                made.close()

        return answer() if made.__name__ == "ready" else asyncio.ensure_future(answer())

    def get(self, answers, timeout):
        for answer in answers:
            asyncio.run(answer)

    def cancel(self, answer):
        self.cancelled += 1

    def kill(self, actor):
        actor.alive = False


class Web:
    """Does what it is told, and notes who was asked what."""

    asked: list = []  # noqa: RUF012

    async def search(self, queries, k):
        self.asked.append(queries[0])
        if queries[0] == "die" or (queries[0].startswith("die once") and self.asked.count(queries[0]) == 1):
            await asyncio.sleep(0.01)  # until the others are under way
            raise SystemExit
        await asyncio.sleep(3600 if queries[0] == "hang" else 0)
        if queries[0] == "bug":
            raise KeyError("a bug")
        return [[Passage(query, query, "title", "text", score=0.5)] for query in queries]

    async def fetch(self, url):
        raise PageError("gone") if "gone" in url else ToolError("down") if "down" in url else RayError("lost")


@pytest.fixture
def ray(monkeypatch):
    double = Ray()
    monkeypatch.setattr(ray_pool, "_import_ray", lambda: double)
    monkeypatch.setattr(ray_pool, "import_module", lambda name: SimpleNamespace(Web=Web))
    monkeypatch.setattr(Web, "asked", [])
    return double


def pool(**options):
    return RayPool("web:Web", {}, **{"workers": 3, "in_flight": 2, "waiting": 4, "deadline_s": 30.0, **options})


def test_calls_are_spread_and_only_so_many_are_with_a_worker(ray):
    async def run():
        found = await asyncio.gather(*(made.search([str(n), "b"], 2) for n in range(50)))
        assert [[passages[0].id for passages in each] for each in found] == [[str(n), "b"] for n in range(50)]
        assert found[0][0] == [Passage("0", "0", "title", "text", score=0.5)]

    made = pool()
    asyncio.run(run())
    assert [actor.most for actor in ray.actors] == [2, 2, 2]


def test_the_calls_of_a_lost_worker_are_made_again_and_it_is_replaced_once(ray):
    async def run():
        queries = [f"die once {n}" for n in range(6)]  # every worker dies with both of its calls
        found = await asyncio.gather(*(made.search([query], 1) for query in queries))
        assert [passages[0].id for (passages,) in found] == queries

    made = pool(attempts=10)
    asyncio.run(run())
    assert len(ray.actors) == 3 + 3
    assert sum(actor.alive for actor in ray.actors) == 3


def test_a_call_is_made_again_so_often_and_no_more(ray):
    made = pool(attempts=2)
    with pytest.raises(ToolError, match=r"lost with each of 2 workers.*it died"):
        asyncio.run(made.search(["die"], 1))
    assert Web.asked == ["die", "die"]
    assert len(asyncio.run(made.search(["a"], 1))) == 1


def test_errors_keep_their_kinds(ray):
    made = pool()
    for call, kind, said in (
        (made.fetch("gone"), PageError, "^gone$"),
        (made.fetch("down"), ToolError, "^down$"),
        (made.fetch("x"), ToolError, "RayError: lost"),
        (made.search(["bug"], 1), ToolError, "KeyError: 'a bug'"),
    ):
        with pytest.raises(kind, match=said):
            asyncio.run(call)
    assert len(ray.actors) == 3


def test_the_deadline_cancels_the_call_in_its_worker(ray):
    made = pool(deadline_s=0.05)
    with pytest.raises(ToolError, match=r"within 0\.05 seconds"):
        asyncio.run(made.search(["hang"], 1))
    assert ray.cancelled == 1


def test_what_was_begun_is_ended_and_nothing_else(ray):
    pool().close()
    assert not any(actor.alive for actor in ray.actors)
    assert ray.connected
    ray.connected = False
    made = pool(address="ray.test:6379")
    assert (ray.options["address"], ray.options["include_dashboard"]) == ("ray.test:6379", False)
    made.close()
    assert not ray.connected


def test_a_page_comes_as_a_page(ray, monkeypatch):
    async def fetch(self, url):
        return Page(url, "title", "text")

    monkeypatch.setattr(Web, "fetch", fetch)
    assert asyncio.run(pool().fetch("u")) == Page("u", "title", "text")


def test_without_ray_it_says_what_to_install(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(ray_pool, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'evoseek\[ray\]'"):
        pool()


@pytest.mark.parametrize("limit", ["workers", "in_flight", "attempts"])
def test_limits_that_make_no_sense_are_refused(limit):
    with pytest.raises(ConfigError, match="at least one of each"):
        pool(**{limit: 0})
