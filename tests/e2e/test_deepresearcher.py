"""DeepResearcher on a site that is really served: training, faults of all kinds, a provider that is down, hanging
servers, and a run repeated without any server."""

import asyncio
import json
import re
import socket
import time
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread

import pytest
from tests.doubles.scripted import ScriptedSampler
from tests.doubles.world_site import WorldSite
from tools.tiny.more_tags import add_tags

from evoseek.models.load import load_policy, save_policy
from evoseek.questions.questions import load_questions, save_questions
from evoseek.reward.functions import WebFormatReward
from evoseek.rollout.record import read_trajectories
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import Invalid, Scored, StopReason
from evoseek.web.extract import Extractor
from evoseek.web.providers import CallLimits
from evoseek.world.site import Site
from evoseek.world.world import World

WORLD = World.generate(5, 200, "train")
SITE = Site(WORLD, 5, second_page=0.0, moved=0.0, dead=0.0, told=0.0)
PATHS = {name: SITE.url_path(entity) for entity, name in enumerate(WORLD.names)}
PASSING = ("too_many", "unavailable", "captcha", "reset", "wrong_length", "hang")  # of which a page knows nothing
LASTING = ("bomb", "internal")  # a page that is so is told to the policy


class Extracting(Extractor):
    """One for all runs here, as its process takes a second to start."""

    def close(self):
        """Not before the last of them."""


@pytest.fixture(scope="module")
def extractor():
    extractor = Extracting(1)
    yield extractor
    Extractor.close(extractor)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The tiny policy with a tag to browse by, and questions of one and two hops."""
    root = tmp_path_factory.mktemp("web")
    policy = load_policy("tiny")
    add_tags(policy, {"browse": "search"})
    save_policy(policy, root / "policy")
    save_questions(root / "questions.jsonl", WORLD.questions(6, seed=5, hops=(1, 2)))
    return root


@contextmanager
def served(slow_s=1.0):
    """A server in a thread of its own."""
    server, ready, runner = WorldSite(SITE, slow_s=slow_s, retry_after_s=0), Event(), asyncio.Runner()
    ended = asyncio.Event()

    async def serve():
        async with server.serving():
            ready.set()
            await ended.wait()

    thread = Thread(target=runner.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield server
    finally:
        runner.get_loop().call_soon_threadsafe(ended.set)
        thread.join(30)
        runner.close()


@pytest.fixture
def train(places, cli, monkeypatch, extractor, tmp_path):
    """`train(url, name, **settings)` trains on the site at an address: status, what was said, the run's directory."""
    monkeypatch.setattr("evoseek.web.web.Extractor", lambda: extractor)

    def run(url, name="run", timeout_s=1.0, **settings):
        limits = partial(CallLimits, timeout_s=timeout_s, max_wait_s=0.2, pause_s=0.3)
        monkeypatch.setattr("evoseek.web.web.CallLimits", limits)
        given = {
            "policy.model": places / "policy",
            "policy.prompts": "tiny",
            "questions.path": places / "questions.jsonl",
            "questions.per_step": 3,
            "rollout.group_size": 4,
            "search.top_k": 3,
            "learner.learning_rate": 1e-4,
            "web.provider": "searxng",
            "web.url": f"{url}/searxng/search",
            "web.rate_per_s": 1000.0,
            "browse.allow_private": [url.removeprefix("http://")],
            "browse.page_words": 80,
            "browse.interval_s": 0.0,
            "browse.timeout_s": 4.0,
            "search.wait_s": 0.02,
            "run.pause_s": 0.0,
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        sets = [word for key, value in given.items() for word in ("--set", f"{key}={_toml(value)}")]
        status, out, err = cli("train", "deepresearcher", "--run-dir", tmp_path / name, *sets)
        return status, f"{out}\n{err}", tmp_path / name

    return run


def _toml(value):
    return json.dumps(value) if isinstance(value, list) else value


class Scripted(ScriptedSampler):
    """Searches for what a question is about, opens its article and answers: every second rollout rightly. `times` has
    how long each rollout took; `before` is called with every request."""

    def __init__(self, places, before, policy):
        self._questions = {question.id: question for question in load_questions(places / "questions.jsonl")}
        self._before, self.max_length, self.times, self._begun = before, 1600, [], {}
        super().__init__(self._say, policy.tokenizer, logprob=-1.0)

    def _say(self, request):
        _, name, number = request.trajectory_id.split("/")
        question = self._questions[name]
        self._before(request)
        self._begun.setdefault(request.trajectory_id, time.monotonic())
        about = question.metadata["chain"][0][0]
        right = int(number.split("r")[0]) % 2 == 0
        answer = question.golden_answers[0] if right else "nobody"
        turns = [f"<search> {about} </search>", f"<browse> {self.url}{PATHS[about]} </browse>"]
        return [*turns, f"<answer> {answer} </answer>"][request.turn]

    def release(self, trajectory_id):
        self.times.append(time.monotonic() - self._begun[trajectory_id])


@pytest.fixture
def scripted(places, monkeypatch):
    """`scripted(url, before)` puts a scripted policy in the place of the sampler."""
    made = []

    def put(url, before=lambda request: None):
        def make(policy):
            sampler = Scripted(places, before, policy)
            sampler.url = url.removeprefix("http://")
            made.append(sampler)
            return sampler

        monkeypatch.setattr(TorchSampler, "build", lambda settings, context: make(context.policy))
        return made

    return put


def records(run):
    """The rollouts of a run, each with its outcome; those that were rolled out again are among them."""
    return [(record.trajectory, record.outcome) for record in read_trajectories(run / "trajectories.jsonl")]


def rows(run, file="metrics.jsonl"):
    return [json.loads(line) for line in (run / file).read_text().splitlines()]


def assert_no_failure_has_a_reward(run):
    """Rollouts that failed are Invalid, and the others are worth what they would be anywhere."""
    for trajectory, outcome in records(run):
        assert isinstance(outcome, Invalid) == trajectory.stop_reason.is_failure
        if isinstance(outcome, Scored):
            assert outcome == asyncio.run(WebFormatReward()(trajectory))


def texts(run):
    """What tools said to rollouts that were scored, by what was asked."""
    return {
        (result.call.name, json.dumps(result.call.arguments), result.text)
        for trajectory, outcome in records(run)
        if isinstance(outcome, Scored)
        for result in trajectory.tool_results
    }


@pytest.fixture
def connections(monkeypatch):
    """Addresses that a socket of this process was connected to."""
    connected, connect = [], socket.socket.connect

    def note(self, address):
        connected.append(address)
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", note)
    return connected


def test_it_trains_and_browses_where_its_policy_browses_and_again_without_a_server(
    train, scripted, connections, tmp_path
):
    with served() as server:
        scripted(server.url)
        status, said, run = train(server.url, run__steps=2, web__record=tmp_path / "record")
    replayed = {"web__provider": "replay", "web__record": tmp_path / "record"}
    assert status == 0, said
    assert len(connections) > 5
    connections.clear()
    status, said, again = train(server.url, "again", run__steps=2, **replayed)
    assert (status, connections) == (0, []), said
    assert (again / "trajectories.jsonl").read_bytes() == (run / "trajectories.jsonl").read_bytes()
    assert_no_failure_has_a_reward(run)
    found = records(run)
    assert len(found) == 2 * 3 * 4
    for trajectory, outcome in found:
        search, browse = trajectory.tool_results
        assert outcome.reward == float(trajectory.answer != "nobody")
        assert PATHS[trajectory.question.metadata["chain"][0][0]] in [
            p.id.removeprefix(server.url) for p in search.passages
        ]
        _, relation, thing = trajectory.question.metadata["chain"][0]
        assert f"'s {relation} is {thing}." in browse.passages[0].text
    for row in rows(run):
        assert (row["browsing/share"], row["browsing/turns"], row["reward"]) == (1.0, 3.0, 0.5)
        assert row["tools/call_frequency"] == 2.0
    assert any("browsing/turns/hops_2" in row for row in rows(run))
    assert server.counts["search"] > 0
    assert server.counts["page"] > 0


def test_faults_end_no_training_and_become_no_reward(train, scripted):
    with served() as server:
        scripted(server.url)
        clean = set()
        for share, waits in ((0.0, {}), (0.5, {"browse__timeout_s": 2.0, "run__max_invalid": 1.0})):
            server.counts.clear()
            for faults in (server.search_faults, server.page_faults):
                faults.set(dict.fromkeys(PASSING + LASTING, share / len(PASSING + LASTING)))
            status, said, run = train(server.url, f"run-{share}", run__steps=2, rollout__wait_s=10.0, **waits)
            assert status == 0, said
            assert_no_failure_has_a_reward(run)
            clean = clean or texts(run)
            met = sum(number for kind, number in server.counts.items() if " " in kind)
            assert met >= 0.5 * share * (server.counts["search"] + server.counts["page"])
            wrong = [(name, text) for name, asked, text in texts(run) if (name, asked, text) not in clean]
            assert all(name == "browse" and "error" in text for name, text in wrong)
            assert len(wrong) <= sum(server.counts[f"page {fault}"] for fault in LASTING)
            failed = {outcome.reason for _, outcome in records(run) if isinstance(outcome, Invalid)}
            assert failed <= {StopReason.TOOL_FAILED, StopReason.DEADLINE}
            assert failed or share < 0.5


def test_a_provider_that_is_down_ends_the_run_with_the_cause(train, scripted):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    scripted(url)
    status, said, run = train(url, run__steps=5, rollout__group_size=8)
    assert status == 2
    assert "tool_failed" in said
    assert re.search(r"127\.0\.0\.1:\d+/searxng/search: (each of|it is not called, since its last \d+ calls)", said)
    assert "Nothing was trained on the invalid ones" in said
    assert_no_failure_has_a_reward(run)
    assert [row["rollout/invalid_frac"] for row in rows(run)] == [1.0] * 3
    assert not list(run.glob("checkpoints/*"))


def test_a_provider_that_comes_back_is_waited_for(train, scripted):
    with served() as server:

        def before(request):
            step = request.trajectory_id.split("/")[0]
            down = {"unavailable": 1.0} if step == "step-000002" else {}
            if request.turn == 0 and server.search_faults.shares != down:
                server.search_faults.set(down)

        scripted(server.url, before)
        status, said, run = train(server.url, run__steps=3, rollout__group_size=8, run__pause_s=0.5)
    assert status == 0, said
    assert "The next step begins in 0.5 s" in said
    assert [row["rollout/invalid_frac"] for row in rows(run)] == [0.0, 1.0, 0.0]
    failures = [trajectory.failure for trajectory, _ in records(run) if trajectory.failure]
    assert any(re.search(r"it is not called, since its last \d+ calls failed", failure) for failure in failures)
    assert rows(run, "timings.jsonl")[1]["rollout/seconds"] < 5.0
    assert_no_failure_has_a_reward(run)


@pytest.mark.parametrize("kind", ["search", "page"])
@pytest.mark.parametrize("fault", ["hang", "slow"])
def test_a_server_that_hangs_holds_no_rollout_beyond_its_deadline(train, scripted, kind, fault):
    """Within a second in one of three runs: a busy machine may hold a rollout longer, too."""
    settings = {"timeout_s": 30.0, "browse__timeout_s": 30.0, "rollout__wait_s": 0.5}
    settings |= {"run__steps": 1, "questions__per_step": 1}
    longest = []
    while len(longest) < 3 and min(longest, default=9.0) >= 0.5 + 1.0:
        with served(slow_s=30.0) as server:
            made = scripted(server.url)
            server_faults = server.search_faults if kind == "search" else server.page_faults
            server_faults.set({fault: 1.0})
            status, said, run = train(server.url, f"run-{len(longest)}", **settings)
        assert status == 2, said
        assert "deadline" in said
        assert len(made[-1].times) == 4 * 3  # each was rolled out again twice
        assert {outcome.reason for _, outcome in records(run)} == {StopReason.DEADLINE}
        longest.append(max(made[-1].times))
    assert min(longest) < 0.5 + 1.0


def test_a_recorded_run_is_repeated_without_a_server_to_the_last_bit(train, connections, tmp_path):
    settings = {"run__steps": 2, "run__max_invalid": 1.0, "rollout__temperature": 0.7, "learner__learning_rate": 1e-3}
    with served() as server:
        server.search_faults.set({"slow": 0.2, "unavailable": 0.4, "hang": 0.1})
        recorded = {"web__record": tmp_path / "record", "timeout_s": 0.5, "search__attempts": 2}
        status, said, first = train(server.url, "first", **recorded, **settings)
        assert status == 0, said
    assert len(connections) > 5
    connections.clear()
    status, said, second = train(
        server.url, "second", web__provider="replay", web__record=tmp_path / "record", **settings
    )
    assert status == 0, said
    assert connections == []
    assert (second / "trajectories.jsonl").read_bytes() == (first / "trajectories.jsonl").read_bytes()
    assert (second / "metrics.jsonl").read_bytes() == (first / "metrics.jsonl").read_bytes()
    assert {type(outcome) for _, outcome in records(first)} == {Invalid, Scored}
