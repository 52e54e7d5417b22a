"""The demonstration from end to end, on small worlds with an untrained policy: what it shows, and its second run."""

import pytest
from tools.tiny.model import tiny_config, tiny_model
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.cli import learning_demo as demo
from evoseek.models import load, source

pytestmark = pytest.mark.slow


@pytest.fixture
def small_demo(monkeypatch, tmp_path):
    tokenizer = tiny_tokenizer()
    config = tiny_config(
        len(tokenizer), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, layers=1
    )
    load.save_policy(load.Policy(tiny_model(config, 0), tokenizer, "tiny"), tmp_path / "tiny")
    monkeypatch.setattr(source, "tiny_policy_dir", lambda _: tmp_path / "tiny")
    monkeypatch.setattr(demo, "ENTITIES", 200)
    monkeypatch.setattr(demo, "TRAINING_QUESTIONS", 40)
    monkeypatch.setattr(demo, "EVALUATION_QUESTIONS", 3)
    options = demo.demo_options
    small = {"questions.per_step": 2, "rollout.max_tokens_per_turn": 24}
    monkeypatch.setattr(demo, "demo_options", lambda *given: options(*given) | small)


def test_demo_shows_what_it_promises_and_runs_twice(small_demo, tmp_path, cli):
    words = ("demo", "--run-dir", tmp_path / "demo", "--max-minutes", 0.01, "--processes", 1)
    status, out, err = cli(*words)
    assert status == 0, err
    for phrase in ("before", "after", "greedy", "search off", "other phrasing", "n=3", "question:", "view "):
        assert phrase in out
    assert f"ask --run-dir {tmp_path}/demo/run --index {tmp_path}/demo/evaluation/index" in " ".join(out.split())
    metrics = (tmp_path / "demo/run/metrics.jsonl").read_bytes()

    status, again, err = cli(*words)
    assert status == 0, err
    assert "trained already" in again
    assert (tmp_path / "demo/run/metrics.jsonl").read_bytes() == metrics
    assert again[again.index("Held-out") :] == out[out.index("Held-out") :]


def test_worlds_of_another_seed_are_not_taken(small_demo, tmp_path, cli):
    demo.make_world(tmp_path / "demo" / "train", "train", 0, 4, (1,))
    status, _, err = cli("demo", "--run-dir", tmp_path / "demo", "--seed", 7, "--processes", 1)
    assert status == 2
    assert "holds the world of seed 0, but the seed is 7" in err
