"""The package's own loop, direct and through the gateway: the same ids, samples, advantages and weights."""

import json

import pytest
import torch
from safetensors.torch import load_file
from tests.doubles import agents

from evoseek import Run
from evoseek.cli.learning_demo import make_world
from evoseek.report.view.html import make_page
from evoseek.report.view.source import RunSource
from evoseek.rollout.record import read_trajectories

STEPS = 2


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    directory = tmp_path_factory.mktemp("world")
    make_world(directory, questions=4, hops=(1, 2), entities=200)
    return directory


def run(world, directory, **options):
    own = {
        "questions.path": str(world / "questions.jsonl"),
        "questions.per_step": 4,
        "rollout.group_size": 4,
        "reward": "tests.doubles.agents:letters",  # so that rewards differ
        "sampler.slots": 1,  # one client at a time, in both ways
        "run.steps": STEPS,
        "run.checkpoint_every": STEPS,
    }
    Run("search-r1", directory, settings=own | options).train()
    return directory


def weights_of(directory):
    (file,) = directory.rglob(f"*{STEPS}/**/model.safetensors")
    return load_file(file)


@pytest.mark.parametrize("over_http", [False, True])
def test_the_own_loop_trains_bit_for_bit_the_same_through_the_gateway(world, tmp_path, monkeypatch, over_http):
    monkeypatch.setenv(agents.INDEX, str(world / "index"))
    if over_http:
        monkeypatch.setenv(agents.OVER_HTTP, "1")
    direct = run(world, tmp_path / "direct", **{"search.index": str(world / "index")})
    foreign = {"agent.name": "tests.doubles.agents:own_loop", "agent.concurrent": 1}
    if not over_http:
        run(world, tmp_path / "through", **foreign, **{"run.steps": 1})  # the second step resumes it
    through = run(world, tmp_path / "through", **foreign)
    pairs = [[*read_trajectories(one / "trajectories.jsonl")] for one in (direct, through)]
    assert len(pairs[0]) == len(pairs[1]) == STEPS * 16
    for one, other in zip(*pairs, strict=True):
        assert one.trajectory.id == other.trajectory.id
        assert one.trajectory.segments == other.trajectory.segments
        assert one.trajectory.answer == other.trajectory.answer
        assert one.outcome == other.outcome
    samples = [(one / "samples.jsonl").read_text() for one in (direct, through)]
    assert samples[0] == samples[1]
    assert any(json.loads(line)["advantages"] for line in samples[0].splitlines())
    before, after = map(weights_of, (direct, through))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    page = make_page([RunSource.open(through)], "data")
    assert "step-000002/" in page.html


def test_an_evaluation_scores_an_agent_as_the_own_loop(world, monkeypatch):
    monkeypatch.setenv(agents.INDEX, str(world / "index"))
    given = {"policy.model": "tiny", "rollout.temperature": 1.0, "sampler.slots": 1}
    ways = {"search.index": str(world / "index")}, {"agent.name": "tests.doubles.agents:own_loop"}
    scores = [
        Run("search-r1", settings=given | way).evaluate(str(world / "questions.jsonl")).score.mean for way in ways
    ]
    assert scores[0] == scores[1]
