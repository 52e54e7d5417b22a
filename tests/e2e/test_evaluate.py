"""`evoseek eval` with a folder: files, resuming, refusals, and a model behind an endpoint."""

import json
import sys
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

from evoseek.assembly.sources import gather
from evoseek.errors import SamplerError
from evoseek.eval.run import with_metric_of_sentences
from evoseek.eval.tables import metric_name
from evoseek.report.view.rollouts import rollout_of
from evoseek.report.view.source import RunSource
from evoseek.samplers.torch.sampler import TorchSampler

http = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "chat" / "chat_server.py")))


@pytest.fixture
def evaluate(setting, cli):
    """`evaluate("--samples", 2)`: the scores, and what was said."""

    def run(*words, status=0):
        found, out, err = cli("eval", "--config", setting.config, "--json", *words)
        assert found == status, err
        return json.loads(out) if not status else None, " ".join(err.split())

    return run


def test_several_samples_with_every_metric(evaluate, cli, tmp_path):
    found, said = evaluate("--samples", 3, "--out", tmp_path / "out")
    assert "Asking 6 of 6 questions, 3 times each." in said
    assert (found["metric"], found["n"], found["samples"], found["final"]) == ("f1", 6, 3, True)
    assert next(iter(found["scores"])) == "f1"
    assert set(found["scores"]) >= {"exact_match", "substring_match", "set_f1"}
    assert set(found["pass_at"]["exact_match"]) == {"1", "2", "3"}
    assert found["cost"]["written"]["n"] == 18
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        "settings.json", "samples.jsonl", "results.json", "results.md", "timings.json", "lock",
        "trajectories.jsonl",
    }  # fmt: skip
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
    assert found["engine"] == "lexical"  # that the index was built for
    assert "search lexical" in (tmp_path / "out" / "results.md").read_text()
    source = RunSource.open(tmp_path / "out")
    assert [name for name, _ in source.scores][:2] == ["F1", "EM"]
    shown = {rollout.id: (rollout.question, rollout.reward) for rollout in source.rollouts(rollout_of)}
    rows = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert {id: reward for id, (_, reward) in shown.items()} == {
        f"evaluation/{row['question']}/{row['number']}": row["scores"]["f1"] for row in rows
    }
    status, said, _ = cli("view", tmp_path / "out")
    assert (status, "Wrote" in said, (tmp_path / "out" / "view.html").is_file()) == (0, True, True)
    status, said, _ = cli("view", tmp_path / "out", "--terminal")
    assert (status, "18 trajectories." in said) == (0, True)


def test_questions_that_the_documents_do_not_answer_are_evaluated(evaluate, setting, cli, tmp_path):
    mixed = tmp_path / "mixed.jsonl"
    marked = {"id": "u1", "question": "who is north of gold?", "golden_answers": [], "answerable": False}
    mixed.write_text(setting.questions.read_text() + json.dumps(marked) + "\n")
    found, _ = evaluate("--questions", mixed, "--out", tmp_path / "out")
    assert {kind: own["refused"]["n"] for kind, own in found["answers"].items()} == {"answerable": 6, "unanswerable": 1}
    for own in found["answers"].values():
        assert sum(own[name]["mean"] for name in ("answered_right", "answered_wrong", "refused")) == pytest.approx(1)
        assert sum(own[name]["mean"] for name in ("shown_right", "shown_wrong", "not_shown")) == pytest.approx(1)
        assert own["not_shown"]["n"] == own["refused"]["n"]
    assert "unanswerable questions" in (tmp_path / "out" / "results.md").read_text()


def test_a_run_is_compared_with_its_model_before_training_if_that_is_here(setting, trained, cli, tmp_path):
    ask = ("eval", "--run-dir", trained.path, "--json", "--questions", setting.questions, "--samples", 2)
    status, out, err = cli(*ask, "--out", tmp_path / "out")
    found, said = json.loads(out), " ".join(err.split())
    assert (status, f"The same questions to {setting.model} untrained" in said) == (0, True)
    before, pair = found["untrained"], found["against_untrained"]
    assert before["metric"] == "guarded_substring_match"
    kept = json.loads((tmp_path / "out" / "untrained" / "settings.json").read_text())
    assert kept["environment"]["name"] == "search_first"
    assert (kept["policy"]["format"], kept["rollout"]["max_tool_calls"]) == ("tags", 0)  # as `evoseek ask`
    assert (pair["first"], pair["second"], pair["n"]) == ("untrained", "trained", 6)
    own = found["scores"]["guarded_substring_match"]["mean"]
    assert pair["difference"] == pytest.approx(own - before["mean"])
    status, out, _ = cli(*ask, "--alone")
    assert (status, "untrained" in json.loads(out)) == (0, False)
    status, shown, _ = cli(*ask[:3], *ask[4:])
    assert (status, "untrained" in shown.split("The same questions")[1]) == (0, True)


def test_answers_of_sentences_are_compared_apart(setting, trained, cli, tmp_path):
    mixed, long = tmp_path / "mixed.jsonl", " ".join(["the", "city", "of", "gold", "lies", "north"] * 2)
    added = {"id": "l1", "question": "where is gold?", "golden_answers": [long]}
    mixed.write_text(setting.questions.read_text() + json.dumps(added) + "\n")
    found = json.loads(cli("eval", "--run-dir", trained.path, "--json", "--questions", mixed)[1])
    metrics = {name: (pair["metric"], pair["n"]) for name, pair in found.items() if name.startswith("against")}
    assert metrics == {"against_untrained": ("guarded_substring_match", 6), "against_untrained_f1": ("f1", 1)}


def test_a_run_whose_model_is_gone_is_evaluated_alone(setting, trained, cli, tmp_path):
    copy = trained.copy(tmp_path / "run")
    config = copy / "config.json"
    config.write_text(config.read_text().replace(str(setting.model), str(tmp_path / "gone")))
    status, out, err = cli("eval", "--run-dir", copy, "--json", "--questions", setting.questions)
    assert (status, "untrained" in json.loads(out)) == (0, False)
    assert "is not on this machine, so the run is not compared" in " ".join(err.split())


def test_a_finished_evaluation_is_only_shown_again(evaluate, tmp_path, monkeypatch):
    first, _ = evaluate("--out", tmp_path / "out")
    lines = (tmp_path / "out" / "samples.jsonl").read_text()

    async def broken(*_):
        raise SamplerError("It must not be asked.")

    monkeypatch.setattr(TorchSampler, "sample", broken)
    again, said = evaluate("--out", tmp_path / "out")
    assert "6 of 6 samples are there; 0 are drawn now." in said
    assert (again, (tmp_path / "out" / "samples.jsonl").read_text()) == (first, lines)


def test_what_only_training_reads_may_change_and_a_new_setting_had_its_default(evaluate, tmp_path):
    evaluate("--out", tmp_path / "out")
    settings = tmp_path / "out" / "settings.json"
    saved = json.loads(settings.read_text())
    del saved["reward"]["unanswered_penalty"], saved["rollout"]["wait_s"]
    settings.write_text(json.dumps(saved))
    _, said = evaluate(
        "--out", tmp_path / "out", "--set", "reward.unanswered_penalty=0.5", "--set", "rollout.group_size=4"
    )
    assert "6 of 6 samples are there" in said
    _, said = evaluate("--out", tmp_path / "out", "--set", "rollout.wait_s=5", status=2)
    assert "rollout.wait_s was None, now 5.0" in said


def test_what_failed_is_drawn_again_and_then_it_is_as_if_nothing_had_failed(evaluate, tmp_path, monkeypatch):
    whole, _ = evaluate("--out", tmp_path / "whole")
    sample, broken = TorchSampler.sample, ("evaluation/q1/", "evaluation/q4/")

    async def failing(self, request):
        if request.trajectory_id.startswith(broken):
            raise SamplerError("The sampler hiccups.")
        return await sample(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(TorchSampler, "sample", failing)
        partly, _ = evaluate("--out", tmp_path / "out")
    assert (partly["final"], partly["n"], partly["n_invalid"]) == (False, 6, 2)
    assert [one["question"] for one in partly["invalid"]] == ["q1", "q4"]
    found, said = evaluate("--out", tmp_path / "out")
    assert "4 of 6 samples are there; 2 are drawn now." in said
    assert found == whole


def test_other_settings_questions_and_greedy_copies_are_refused(evaluate, setting, tmp_path):
    evaluate("--out", tmp_path / "out")
    other = tmp_path / "other.jsonl"
    other.write_text(setting.questions.read_text().replace("north", "south", 1))
    for words, phrase in {
        ("--samples", 2): "samples was 1, now 2",
        ("--seed", 5): "seed was 0, now 5",
        ("--no-search",): "search was True, now False",
        ("--questions", other): "questions was",
        ("--set", "rollout.max_turns=2"): "rollout.max_turns was 3, now 2",
        ("--set", "search.top_k=1"): "search.top_k was 3, now 1",
    }.items():
        assert phrase in evaluate("--out", tmp_path / "out", *words, status=2)[1]
    assert "are all the same at temperature 0" in evaluate("--samples", 2, "--temperature", 0, status=2)[1]


def test_a_reward_of_ones_own_that_was_changed_is_refused(evaluate, tmp_path, monkeypatch):
    module = tmp_path / "graded_by_me.py"
    monkeypatch.syspath_prepend(tmp_path)
    for value, status in ((0.25, 0), (0.75, 2)):
        module.write_text(f"async def reward(trajectory):\n    return {value}  # of a file that is longer {value}\n")
        sys.modules.pop("graded_by_me", None)
        said = evaluate("--out", tmp_path / "out", "--set", "reward.name=graded_by_me:reward", status=status)[1]
    assert "own.reward (graded_by_me:reward).sha256 was" in said


def test_a_model_behind_an_endpoint_is_evaluated(evaluate, setting, tmp_path):
    turns = ("<search> north </search>", "<answer> north </answer>")
    with http.ChatServer(*(http.replies(http.choice(turn)) for turn in turns * 2)) as server:
        asked = (
            "--set",
            f"answerer.base_url={server.url}",
            "--set",
            "answerer.model=a-model",
            "--set",
            "answerer.concurrency=1",
        )
        words = ("--index", setting.index, *asked, "--limit", 1, "--out", tmp_path / "out")
        found, _ = evaluate(*words, "--set", "reward.name=exact_match")
    assert (found["model"], found["n"], found["mean"]) == ("a-model", 1, 1.0)
    assert (found["cost"]["searches"]["mean"], "written" in found["cost"]) == (2.0, False)  # the first one too


@pytest.mark.parametrize(
    ("words", "metric", "right"),
    [
        ((), "guarded_substring_match", 1.0),
        (("--baseline", "direct"), "guarded_substring_match", 1.0),
        (("--set", "reward.name=exact_match"), "exact_match", 0.0),
    ],
)
def test_sentences_of_an_endpoint_are_not_wrong_by_default(setting, cli, tmp_path, words, metric, right):
    """In the headline, in what became of the questions, and in what is shown; a metric that is asked for is kept."""
    (tmp_path / "q.jsonl").write_text('{"question": "river gold is?", "answer": "north"}\n')
    out = tmp_path / "out"
    with http.ChatServer(http.replies(http.choice("<answer> The gold river is north of here. </answer>"))) as server:
        given = ("--index", setting.index, "--questions", tmp_path / "q.jsonl", "--out", out, *words)
        status, _, err = cli("eval", f"a-model@{server.url}", *given)
    assert status == 0, err
    found, text = json.loads((out / "results.json").read_text()), (out / "results.md").read_text()
    assert (found["metric"], found["mean"]) == (metric, right)
    assert found["answers"]["answerable"]["answered_right"]["mean"] == right
    assert f"Answers and refusals, right by {metric_name(metric)}" in text
    assert ("1 of 1 answers hold a golden answer within a longer text" in text) is (not right)


@pytest.mark.parametrize(
    "name",
    ["rag", *(pytest.param(name, marks=pytest.mark.merge) for name in ("direct", "ircot", "search-o1", "ragent"))],
)
def test_a_baseline_is_evaluated_and_resumed_as_any_other(evaluate, tmp_path, monkeypatch, name):
    whole, _ = evaluate("--baseline", name, "--out", tmp_path / "whole")
    assert (whole["baseline"], whole["search"], whole["n"], whole["final"]) == (name, name != "direct", 6, True)
    assert whole["cost"]["written"]["n"] == 6
    assert f" by {name}: f1" in (tmp_path / "whole" / "results.md").read_text()
    sample = TorchSampler.sample

    async def failing(self, request):
        if request.trajectory_id.startswith(("evaluation/q1/", "evaluation/q4/")):
            raise SamplerError("The sampler hiccups.")
        return await sample(self, request)

    with monkeypatch.context() as patch:
        patch.setattr(TorchSampler, "sample", failing)
        partly, _ = evaluate("--baseline", name, "--out", tmp_path / "out")
    assert (partly["final"], partly["n_invalid"]) == (False, 2)
    found, said = evaluate("--baseline", name, "--out", tmp_path / "out")
    assert "4 of 6 samples are there; 2 are drawn now." in said
    assert found == whole
    assert "baseline was" in evaluate("--baseline", "cot", "--out", tmp_path / "out", status=2)[1]


def test_baselines_that_are_refused(evaluate):
    assert "There is no baseline 'ragg'. Did you mean rag?" in evaluate("--baseline", "ragg", status=2)[1]
    assert "--no-search and --baseline were both given" in evaluate("--baseline", "rag", "--no-search", status=2)[1]


def test_a_baseline_of_ones_own_that_was_changed_is_refused(evaluate, tmp_path, monkeypatch):
    module = tmp_path / "answered_by_me.py"
    monkeypatch.syspath_prepend(tmp_path)
    for prompt, status in (("baseline_direct", 0), ("baseline_cot", 2)):
        module.write_text(
            "class Mine:\n    searches = False\n    async def __call__(self, attempt):\n"
            f"        return await attempt.roll({prompt!r})\n"
        )
        sys.modules.pop("answered_by_me", None)
        said = evaluate("--out", tmp_path / "out", "--baseline", "answered_by_me:Mine", status=status)[1]
    assert "own.--baseline (answered_by_me:Mine).sha256 was" in said


def test_a_model_behind_an_endpoint_answers_by_a_baseline(evaluate, setting, tmp_path):
    with http.ChatServer(*(http.replies(http.choice(turn)) for turn in ("north is.", "<answer> north </answer>"))) as s:
        asked = (
            "--set",
            f"answerer.base_url={s.url}",
            "--set",
            "answerer.model=a-model",
            "--set",
            "answerer.concurrency=1",
        )
        words = ("--index", setting.index, *asked, "--limit", 1, "--baseline", "ircot", "--samples", 1)
        found, _ = evaluate(*words, "--set", "reward.name=exact_match")
    assert (found["model"], found["mean"], found["cost"]["searches"]["mean"]) == ("a-model", 1.0, 2.0)


def test_who_answers_with_which_engine_may_stand_alone(setting, cli, trained):
    def run(*words, status=0):
        found, out, err = cli("eval", *words, "--limit", 2, "--json", "--set", "reward.name=exact_match")
        assert found == status, err
        return json.loads(out) if not status else " ".join(err.split())

    words = ("--on", setting.questions, "--index", setting.index)
    short = ("--set", "policy.prompts=tiny", "--set", "rollout.max_total_tokens=160", "--temperature", 0)
    assert run(setting.model, *words, *short) == run(
        "--model", setting.model, "--index", setting.index, *words[:2], *short
    )
    by_run = run(trained.path, *words)
    assert by_run == run("--run-dir", trained.path, "--index", setting.index, *words[:2])
    with http.ChatServer(*(http.replies(http.choice("<answer> north </answer>")) for _ in range(2))) as server:
        assert run(f"a-model@{server.url}", *words)["model"] == "a-model"
    assert "There is no folder no-such-index." in run(setting.model, *words[:2], "--index", "no-such-index", status=2)


def test_who_answers_is_said_once(cli):
    for words, phrase in {
        ("tiny", "--model", "tiny"): "tiny and --model both name a policy or model",
        (
            "http://localhost:1/v1",
        ): "names no model at the endpoint. Expected NAME@URL, as in qwen@http://localhost:1/v1.",
    }.items():
        status, _, err = cli("eval", *words)
        assert (status, phrase in " ".join(err.split())) == (2, True), err


def test_an_untrained_model_that_is_searched_first_is_scored_by_sentences():
    def metric(*sets):
        given = gather([], sets=sets)
        return with_metric_of_sentences(given.read(), given, None).reward.name

    assert metric("environment.name=search_first") == "guarded_substring_match"
    assert metric("environment.name=search_first", "reward.name=f1") == "f1"
    assert metric() == "exact_match"
