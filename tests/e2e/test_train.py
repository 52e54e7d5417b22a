"""The whole way through the command line: train, resume, evaluate, ask."""

import json
import shutil
import signal

import pytest
from safetensors.torch import load_file

from evoseek.text.language import is_refusal


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_train_writes_a_complete_run(trained):
    run = trained.path
    metrics = rows(run / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2, 3, 4]
    for name in ("reward", "reward_std", "frac_reward_zero_std", "entropy", "completions/mean_length", "loss"):
        assert name in metrics[1]
    assert {"eval/reward", "eval/n"} <= metrics[0].keys() & metrics[2].keys() & metrics[4].keys()
    assert "eval/reward" not in metrics[1]
    assert metrics[0]["eval/n"] == 6
    assert len(rows(run / "trajectories.jsonl")) == 4 * 3 * 4
    assert len(rows(run / "timings.jsonl")) == 5
    samples = {row["id"]: row["advantages"] for row in rows(run / "samples.jsonl")}
    groups = {}
    for row in rows(run / "trajectories.jsonl"):
        groups.setdefault(row["group"], []).append(samples[row["id"]])
    assert all(abs(sum(advantages)) < 1e-6 for advantages in groups.values())  # relative to the group's mean
    assert json.loads((run / "config.json").read_text())["run"]["steps"] == 4
    assert "step 4/4" in trained.said


def test_training_changes_the_weights_and_searches(setting, trained):
    before = load_file(setting.model / "model.safetensors")
    after = load_file(trained.path / "checkpoints/step-000004/policy/model.safetensors")
    assert any((before[name] != after[name]).any() for name in before)
    searched = [row for row in rows(trained.path / "trajectories.jsonl") if row["tool_results"]]
    assert searched


def test_questions_that_the_documents_do_not_answer_are_trained_on(setting, tmp_path, cli):
    """A wrong answer costs a quarter, to any question; the documents that are hidden from a question are not found."""
    hidden = ["north", "south", "river"]
    marked = {"id": "u1", "question": "who is north of gold ?", "golden_answers": [], "answerable": False}
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(setting.questions.read_text() + json.dumps({**marked, "hidden": hidden}) + "\n")
    sets = (f"questions.path={mixed}", "questions.per_step=7", "reward.wrong_penalty=0.25", "evaluation.every=0")
    words = [word for one in sets for word in ("--set", one)]
    status, _, err = cli(*setting.train(tmp_path / "run", "--steps", 1, *words))
    assert status == 0, err
    rolled = rows(tmp_path / "run" / "trajectories.jsonl")
    advantages = {row["id"]: row["advantages"] for row in rows(tmp_path / "run" / "samples.jsonl")}
    assert len(rolled) == len(advantages) == 7 * 4
    found, groups = {"answerable": set(), "u1": set()}, {}
    for row in rolled:
        parts, is_marked = row["outcome"]["parts"], row["question"]["id"] == "u1"
        is_wrong = row["answer"] is not None and parts["f1"] == 0 and not is_refusal(row["answer"])
        assert row["outcome"]["reward"] == parts["f1"] - 0.25 * is_wrong
        assert parts["f1"] == is_refusal(row["answer"]) or not is_marked
        groups.setdefault(row["group"], []).append((row["outcome"]["reward"], advantages[row["id"]]))
        passages = [p["document_id"] for result in row["tool_results"] for p in result.get("passages", ())]
        found["u1" if is_marked else "answerable"].update(passages)
    assert found["u1"].isdisjoint(hidden)
    assert not found["answerable"].isdisjoint(hidden)
    mixed = [sorted(group) for group in groups.values() if len({reward for reward, _ in group}) > 1]
    assert mixed
    assert all(group[0][0] == -0.25 and group[0][1] < 0 < group[-1][1] for group in mixed)
    status, _, err = cli(*setting.train(tmp_path / "judged", "--steps", 1, *words, "--set", "reward.name=fan_out"))
    assert status == 2
    assert "Question 'u1' ('who is north of gold ?') is marked as unanswerable" in " ".join(err.split())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_run_that_is_extended_equals_one_made_in_a_single_go(setting, trained, tmp_path, cli, dtype):
    """More steps may be asked for later; rows of evaluation at the old end are the only difference."""
    words, whole = ("--set", f"policy.dtype={dtype}"), trained.path
    if dtype != "float32":
        whole = tmp_path / "whole"
        cli(*setting.train(whole, *words))
    cli(*setting.train(tmp_path / "parts", "--steps", 2, *words))
    status, out, _ = cli(*setting.train(tmp_path / "parts", *words))
    assert status == 0
    assert "Resuming" in out
    optimizer = "policy.optimizer/rank-00000-of-00001.safetensors"
    last = [f"checkpoints/step-000004/{name}" for name in ("policy/model.safetensors", optimizer)]
    for name in ("metrics.jsonl", "trajectories.jsonl", "samples.jsonl", *last):
        assert (whole / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_a_finished_run_is_left_as_it_is(setting, trained, tmp_path, cli):
    run = trained.copy(tmp_path / "run")
    status, _, _ = cli(*setting.train(run))
    assert status == 0
    for name in ("metrics.jsonl", "trajectories.jsonl"):
        assert (run / name).read_bytes() == (trained.path / name).read_bytes()


def test_eval_and_ask_on_a_run(trained, cli):
    status, out, err = cli("eval", "--run-dir", trained.path, "--temperature", 0)
    assert status == 0, err
    assert "n=6" in out
    assert "greedy" in out
    status, out, err = cli("ask", "--run-dir", trained.path, "north is")
    assert (status, "Not found in the documents." in out) == (1, True), err
    status, out, err = cli("ask", "--run-dir", trained.path, "north is", "--set", "support.unsupported=show")
    assert status == 0, err
    assert "Searches:" in out
    assert "Passages about the question that contain these words (no more was checked):" in out


def test_eval_asks_as_many_as_the_config_or_the_option_says(setting, cli):
    for more, asked in ((), 6), (("--limit", 4), 4), (("--set", "evaluation.limit=2"), 2):
        status, out, err = cli("eval", "--config", setting.config, *more)
        assert status == 0, err
        assert f"Asking {asked} of 6 questions." in out
        assert f"n={asked}" in out


def test_what_the_chat_template_can_do_is_said(setting, tmp_path, cli):
    model = tmp_path / "model"
    shutil.copytree(setting.model, model)
    settings = json.loads((model / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    common = ("--config", setting.config, "--model", model, "--set", "environment.name=solver")
    for words in (
        ("train", "--run-dir", tmp_path / "run", "--steps", 1, *common),
        ("eval", *common),
        ("ask", *common, "north is"),
    ):
        status, out, err = cli(*words)
        assert status == 0, err
        assert "The chat template has no tool calls" in out
    assert "chat template" not in cli("ask", "--config", setting.config, "north is")[1]


def test_index_and_search(tmp_path, cli):
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("The kiwi is a bird of New Zealand.")
    (corpus / "b.md").write_text("# Oslo\n\nOslo is the capital of Norway.")
    (corpus / "empty.txt").write_text("")
    status, out, err = cli("index", corpus, tmp_path / "index")
    assert status == 0, err
    assert "1 empty" in out
    status, out, _ = cli("search", tmp_path / "index", "capital of Norway", "-k", 1)
    assert status == 0
    assert "Oslo" in out
    assert "kiwi" not in out


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(setting, processes, tmp_path, sent):
    words = setting.train(tmp_path / "run", "--steps", "100000", "--set", "evaluation.every=0")
    command = processes.start(*words)
    assert command.interrupt_after("step 2/", sent) == [130]
    assert "The same command resumes it." in command.said()
    last = rows(tmp_path / "run/metrics.jsonl")[-1]["step"]
    assert (tmp_path / f"run/checkpoints/step-{last:06d}/state.json").exists()


def test_a_run_that_searches_first_is_resumed_bit_for_bit(setting, tmp_path, cli):
    """The prompt shows what its search found, and none of it is trained on."""
    first = ("--set", "environment.name=search_first", "--set", "evaluation.every=0")
    for name, parts in (("whole", (4,)), ("parts", (2, 4))):
        for steps in parts:
            status, _, err = cli(*setting.train(tmp_path / name, "--steps", steps, *first))
            assert status == 0, err
    whole, resumed = (rows(tmp_path / name / "trajectories.jsonl") for name in ("whole", "parts"))
    assert whole == resumed
    weights = [tmp_path / name / "checkpoints/step-000004/policy/model.safetensors" for name in ("whole", "parts")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    for row in whole:
        (result,) = row["opening"]
        assert (result["call"]["arguments"]["query"], bool(result["passages"])) == (row["question"]["text"], True)
        prompt, *others = row["segments"]
        assert all(passage["title"] in prompt["text"].split() for passage in result["passages"])
        assert ("logprobs" in prompt, "logprobs" in others[0]) == (False, True)
    groups = {row["group"]: set() for row in whole}
    for row in whole:
        groups[row["group"]].add(tuple(row["segments"][0]["ids"]))
    assert all(len(prompts) == 1 for prompts in groups.values())


def test_a_run_is_resumed_by_its_directory_alone_and_with_what_may_differ(setting, tmp_path, cli):
    run = tmp_path / "run"
    assert cli(*setting.train(run, "--steps", 1))[0] == 0
    status, out, err = cli("train", "--run-dir", run, "--steps", 2, "--index", setting.index)
    assert status == 0, err
    assert f"Resuming {run} after step 1." in " ".join(out.split())
    assert [row["step"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())][-1] == 2
    status, out, _ = cli("train", "--run-dir", run)
    assert (status, "to step 2" in " ".join(out.split())) == (0, True)
    for words, phrase in {
        ("--set", "learner.learning_rate=0.5"): "learner.learning_rate was 0.01, now 0.5",
        ("--set", "critic.warmup_steps=5"): "critic.warmup_steps was 0, now 5",
    }.items():
        status, _, err = cli("train", "--run-dir", run, *words)
        assert status == 2
        assert phrase in " ".join(err.split())
    status, _, err = cli("train", "dspo", "--run-dir", run)
    assert (status, "holds settings for 'search-r1'" in " ".join(err.split())) == (2, True)


def test_scores_and_answers_as_json(setting, cli):
    status, out, err = cli("eval", "--config", setting.config, "--json", "--limit", 4, "--temperature", 0)
    assert status == 0, err
    found = json.loads(out)
    assert (found["metric"], found["n"], found["n_invalid"], found["search"]) == ("f1", 4, 0, True)
    assert found["interval_95"][0] <= found["mean"] <= found["interval_95"][1]
    assert "Asking 4 of 6 questions." in " ".join(err.split())
    status, out, err = cli("ask", "--config", setting.config, "--json", "north is")
    found = json.loads(out)
    assert status == (0 if found["answer"] else 1)
    assert (found["question"], len(found["written"]) >= 1) == ("north is", True)


def test_without_an_answer_what_was_written_is_shown_and_the_status_is_1(setting, cli):
    status, out, err = cli("ask", "--config", setting.config, "--set", "rollout.max_tokens_per_turn=1", "north is")
    assert status == 1, err
    assert "No answer (max_tokens)." in out
    assert "What the model wrote:" in out
