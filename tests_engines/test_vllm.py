"""What evoseek says about servers of vLLM, tried with a real one. Each test prints its numbers (`-rP` shows them).

They share a server and run in this order: training all weights leaves other ones in it. The last test kills its own.
"""

import time
from collections import Counter

import pytest

from evoseek.errors import EvoseekError, TrainingError
from evoseek.learner.logprobs import LogprobModel, with_scores
from evoseek.models.load import load_policy
from evoseek.run import Run
from evoseek.samplers.vllm import server as connection
from evoseek.samplers.vllm.process import HOST, free_ports
from evoseek.storage.metrics import read_metrics
from evoseek.training.probe import EXACT
from evoseek.types import TrainingSample


def by_servers(*urls, **settings):
    return {"sampler.name": "vllm", "sampler.urls": [*urls], "sampler.timeout_s": 1800, **settings}


def paid(trajectory):
    """A reward for every rollout: with raw credit every step changes the weights, also if all rollouts are the same."""
    return 1.0


def timed(evaluation):
    began = time.monotonic()
    done = evaluation()
    return done, f"{time.monotonic() - began:.0f} seconds"


def test_rollouts_are_id_for_id_what_the_server_was_given_and_gave(proxy, common, questions):
    run = Run("search-r1", None, settings=common | by_servers(proxy.url))
    evaluation, seconds = timed(lambda: run.evaluate(questions, temperature=1.0))
    trajectories = [result.trajectory for result in evaluation.results]
    given = Counter(
        (tuple(body["prompt"]), tuple(reply["token_ids"]), tuple(reply["logprobs"]["token_logprobs"]))
        for body, reply in proxy.turns
    )
    used = Counter()
    for trajectory in trajectories:
        written = ()
        for segment in trajectory.segments:
            if segment.kind == "action":
                used[written, segment.token_ids, segment.logprobs] += 1
            written += segment.token_ids
    assert used == given
    assert evaluation.score.n_invalid == 0
    turns, searches = used.total(), sum(len(trajectory.tool_results) for trajectory in trajectories)
    assert turns > len(trajectories)
    print(f"{len(trajectories)} rollouts, {turns} turns, {searches} searches, {seconds}, reward {evaluation.score}")

    samples = [
        TrainingSample(one.token_ids, one.loss_mask, one.rollout_logprobs, (0.0,) * len(one.token_ids))
        for one in trajectories[:8]
    ]
    learner = LogprobModel(load_policy(str(common["policy.model"])).model, temperature=1.0)
    pairs = [
        abs(own - other)
        for sample in with_scores("old_logprobs", samples, forward=learner, token_budget=768)
        for own, other, acted in zip(sample.rollout_logprobs, sample.old_logprobs, sample.loss_mask, strict=True)
        if acted
    ]
    print(f"logprobs in float32: {len(pairs)} tokens, mean difference {sum(pairs) / len(pairs):.2g}, {max(pairs):.2g}")
    assert sum(pairs) / len(pairs) < EXACT

    own = Run("search-r1", None, settings=common | {"sampler.slots": 32})
    embedded, seconds = timed(lambda: own.evaluate(questions, temperature=1.0))
    print(f"embedded sampler: {seconds}, reward {embedded.score}")
    for one, other in ((evaluation.score, embedded.score), (embedded.score, evaluation.score)):
        assert one.interval.low <= other.mean <= one.interval.high


def test_weights_that_do_not_reach_the_server_stop_the_run(proxy, common, tmp_path):
    proxy.swallowed = {"/collective_rpc"}  # so that it keeps those that it was started with
    settings = common | by_servers(proxy.url) | {"learner.learning_rate": 5e-5, "run.steps": 2}
    run = Run("search-r1", tmp_path / "run", settings=settings, reward=paid)
    with pytest.raises(TrainingError, match=r"With the weights of step [12], .* has other weights") as raised:
        run.train()
    print(raised.value)


def failing(*urls):
    return by_servers(*urls) | {"lora.rank": 8, "sampler.timeout_s": 90}


@pytest.fixture
def quick(monkeypatch):
    """A server is lost after two calls, each of one attempt, and not tried again."""
    monkeypatch.setitem(connection.Link.__init__.__kwdefaults__, "attempts", 1)
    monkeypatch.setattr(connection, "_FAILURES", 2)
    monkeypatch.setattr(connection, "_PAUSE_S", 600.0)


@pytest.mark.usefixtures("quick")
def test_a_run_goes_on_without_a_server_that_is_lost(server, common, tmp_path):
    (nobody,) = free_ports(1)
    settings = common | failing(server.url, f"http://{HOST}:{nobody}") | {"run.steps": 1}
    run = Run("search-r1", tmp_path / "run", settings=settings, reward=paid)
    assert run.train() == 1
    (row,) = read_metrics(run.directory.metrics)
    print({name: value for name, value in row.items() if name.startswith(("sampling/", "rollout/", "reward"))})
    assert row["sampling/servers_lost"] == 1


def fails(fault, said, proxy, common, directory):
    proxy.fault, proxy.spared = fault, 3 + 1  # the probe, and a turn
    run = Run("search-r1", directory / "run", settings=common | failing(proxy.url) | {"run.steps": 2})
    with pytest.raises(EvoseekError, match=said) as raised:
        run.train()
    rows = read_metrics(run.directory.metrics)
    print(raised.value, rows)
    assert all(row.get("reward") is None for row in rows)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("fault", "said"), [("error", "The engine is dead"), ("hang", "had not replied")])
def test_a_server_that_fails_gives_no_reward_and_the_run_says_why(fault, said, proxy, common, tmp_path):
    fails(fault, said, proxy, common, tmp_path)


@pytest.mark.parametrize(("rank", "steps", "rate"), [(8, 10, 1e-3), (0, 3, 5e-5)])
def test_the_probe_agrees_after_every_step(rank, steps, rate, server, common, tmp_path):
    settings = by_servers(server.url) | {"lora.rank": rank, "learner.learning_rate": rate, "run.steps": steps}
    run = Run("search-r1", tmp_path / "run", settings=common | settings, reward=paid)
    _, seconds = timed(run.train)
    rows = read_metrics(run.directory.metrics)
    print(f"rank {rank}, {seconds}, means", [f"{row['sampling/probe_mean']:.1e}" for row in rows])
    assert len(rows) == steps
    assert all(row["sampling/probe_mean"] < EXACT for row in rows)
    assert all(row["grad_norm"] > 0 for row in rows)


@pytest.mark.usefixtures("quick")
def test_a_server_that_is_killed_gives_no_reward_and_the_run_says_why(doomed, common, tmp_path):
    fails("kill", "the connection failed", doomed, common, tmp_path)
