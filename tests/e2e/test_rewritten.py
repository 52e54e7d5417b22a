"""A run whose contexts are rewritten: the learner computes, for every branch, what the sampler computed."""

import json

import pytest
from rich.console import Console

from evoseek.cli.learning_demo import make_world
from evoseek.rollout.record import read_trajectories
from evoseek.run import Run
from evoseek.storage.metrics import read_metrics

pytestmark = pytest.mark.slow


def test_every_branch_is_trained_on_as_it_was_sampled(tmp_path):
    """Two turns fill a context of 100 tokens: the tiny policy reads one passage of some 30 tokens at a time."""
    make_world(tmp_path / "world", questions=8, hops=(3, 4), entities=200)
    settings = {
        "policy.model": "tiny-reader",
        "environment.name": "notes",
        "search.index": str(tmp_path / "world" / "index"),
        "search.top_k": 1,
        "questions.path": str(tmp_path / "world" / "questions.jsonl"),
        "questions.per_step": 4,
        "rollout.group_size": 4,
        "rollout.max_turns": 8,
        "rollout.max_tokens_per_turn": 30,
        "rollout.max_total_tokens": 120,
        "run.steps": 1,
        "run.record_samples": "tokens",
    }
    run = Run("search-r1", tmp_path / "run", settings=settings, console=Console(quiet=True))
    assert run.train() == 1
    (row,) = read_metrics(run.directory.metrics)
    rolled = [record.trajectory for record in read_trajectories(run.directory.trajectories)]
    assert row["rollout/branches"] == sum(len(one.branches) for one in rolled) / len(rolled) > 1
    assert max(len(branch.token_ids) for one in rolled for branch in one.branches) <= 120
    samples = {row["id"]: row for row in map(json.loads, run.directory.samples.read_text().splitlines())}
    for one in rolled:
        sampled = [logprob for segment in one.segments for logprob in segment.logprobs]
        assert samples[one.id]["old_logprobs"] == pytest.approx(sampled, abs=1e-4)
