"""Supervised fine-tuning through the command line: trained, resumed bit for bit, and the beginning of other runs."""

import json
import re

import pytest
from tests.doubles.earlier import begun_earlier

from evoseek.rollout.record import read_trajectories

pytestmark = pytest.mark.slow


@pytest.fixture
def demonstrations(tmp_path):
    """Every word is searched for, and the word that its passage ends with is the answer."""
    words = ("north", "south", "river", "stone", "gold", "seven")
    turns = {word: [{"query": word}, {"answer": words[n - 1]}] for n, word in enumerate(words)}
    path = tmp_path / "demonstrations.jsonl"
    path.write_text("".join(json.dumps({"question": f"{word} is", "turns": turns[word]}) + "\n" for word in words * 2))
    return path


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_policy_learns_from_demonstrations_and_then_from_rewards(setting, demonstrations, tmp_path, cli):
    def sft(run, *more):
        source = ("--model", setting.model, "--index", setting.index, "--questions", setting.questions)
        sets = (
            "sampler.slots=8",
            "rollout.max_tokens_per_turn=12",
            "rollout.max_total_tokens=160",
            "policy.prompts=tiny",
        )
        sets += ("demonstrations.per_step=4", "learner.learning_rate=1e-2", "evaluation.every=5")
        status, out, err = cli("sft", "--run-dir", run, *source, *(w for text in sets for w in ("--set", text)), *more)
        assert status == 0, err
        return out

    given = ("--demonstrations", demonstrations, "--epochs", 4)
    out = sft(tmp_path / "whole", *given)
    assert "12 demonstrations with" in out
    assert "tokens; 72 are learnt." in out
    metrics = rows(tmp_path / "whole/metrics.jsonl")
    assert [row["step"] for row in metrics] == list(range(11))  # 4 epochs of 10 demonstrations; a question is held out
    assert metrics[-1]["loss"] < 0.9 * metrics[1]["loss"]
    assert [(row["eval/loss_n"], row["eval/n"]) for row in metrics if "eval/loss" in row] == [(2.0, 6.0)] * 3
    assert metrics[-1]["learning_rate"] == pytest.approx(1e-3)

    sft(tmp_path / "parts", *given, "--set", "run.steps=4")
    sft(tmp_path / "parts", *given, "--set", "run.steps=99")
    for name in ("metrics.jsonl", "checkpoints/step-000010/policy/model.safetensors"):
        left, right = ((tmp_path / run / name).read_bytes() for run in ("whole", "parts"))
        if name == "metrics.jsonl":  # a run that ends is evaluated at its end
            left, right = ([r for r in rows(tmp_path / run / name) if r["step"] != 4] for run in ("whole", "parts"))
        assert left == right

    rl = tmp_path / "rl"
    status, out, err = cli(*setting.train(rl, "--model", tmp_path / "whole", "--steps", "1"))
    assert status == 0, err
    rolled = list(read_trajectories(rl / "trajectories.jsonl"))
    assert sum(record.trajectory.answer is not None for record in rolled) >= 10  # of 12

    status, out, err = cli("eval", "--run-dir", tmp_path / "whole", "--temperature", 0)
    assert status == 0, err
    assert "n=6" in out


def test_what_a_policy_got_right_is_collected_and_learnt(setting, tmp_path, cli):
    out, common = tmp_path / "collected.jsonl", ("--config", setting.config)
    words = ("collect", out, *common, "--attempts", 8, "--per-question", 2, "--set", "reward.name=exact_match")
    status, said, err = cli(*words)
    assert status == 0, err
    assert "answered 6 questions in 48 rollouts: " in said
    kept = len(rows(out))
    assert f"{kept} demonstrations are in {out}." in " ".join(said.split())
    begun_earlier(out)
    assert cli(*words)[0] == 0
    assert len(rows(out)) == kept > 0
    source = ("--model", setting.model, "--index", setting.index, "--set", "policy.prompts=tiny")
    status, said, err = cli("sft", "--run-dir", tmp_path / "run", "--demonstrations", out, *source)
    assert status == 0, err
    learnt = int(re.search(r"collected.jsonl: (\d+) demonstrations with", said.replace("\n", ""))[1])
    left_out = re.search(r"learnt\. (\d+) are left out", said.replace("\n", ""))
    assert learnt + (int(left_out[1]) if left_out else 0) == kept  # thoughts: this tokenizer has no <think>
