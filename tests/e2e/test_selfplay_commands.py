"""Self-play through the command line: train, resume, and what the other commands make of its runs."""

import json

import pytest
from rich.console import Console
from safetensors.torch import load_file

from evoseek.questions.questions import load_questions, save_questions
from evoseek.search.indexing import IndexPlan, build_index
from evoseek.search.lexical import LexicalIndex
from evoseek.world.world import World

PHASES = {
    "dr_zero.iterations": 1,
    "dr_zero.proposer_steps": 2,
    "dr_zero.writing_steps": 1,
    "dr_zero.solver_steps": 1,
    "dr_zero.passages_per_writing_step": 4,
    "dr_zero.questions_per_passage": 1,
}
SMALL = {
    "proposer.max_tokens_per_turn": 64,
    "rollout.max_turns": 3,
    "selfplay.proposals_per_step": 6,
    "proposer.attempts": 2,
    "proposer.ratio": [1, 1],
    "run.checkpoint_every": 1,
}
SOLVER = {"questions.per_step": 4, "rollout.group_size": 4}  # of dr-zero


def sets(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small world's index, and questions about it."""
    root = tmp_path_factory.mktemp("world")
    made = World.generate(3, 200, "train")
    LexicalIndex.build(root / "index", made.passages())
    save_questions(root / "questions.jsonl", made.questions(6, seed=3, hops=(1, 2)))
    return root


def held_out(world):
    return ("--set", f"evaluation.path={world / 'questions.jsonl'}", "--set", "evaluation.every=1")


def test_dr_zero_by_its_command_resumes_and_its_solver_is_asked_scored_and_exported(world, tmp_path, cli):
    run = tmp_path / "run"
    words = ("train", "dr-zero", "--corpus", world / "index", "--model", "tiny-weak", "--run-dir", run)
    words = (*words, *sets(PHASES | SMALL | SOLVER), *held_out(world))
    assert cli(*words, "--steps", 2)[0] == 0
    status, said, err = cli("train", "--run-dir", run, "--steps", 4)  # all else is the run's own
    assert status == 0, err
    assert "after step 2" in said
    assert "step 4/4" in said
    assert "Curves and rollouts:" in said
    metrics = rows(run / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2, 3, 4]
    assert {"selfplay/valid_rate", "proposer/reward"} <= metrics[1].keys()
    assert {"selfplay/written", "solver/reward", "eval/reward"} <= metrics[3].keys() | metrics[4].keys()
    assert len(load_questions(run / "questions.jsonl")) == metrics[3]["selfplay/written"]
    parts = {
        part: load_file(run / f"checkpoints/step-000004/{part}/model.safetensors") for part in ("policy", "proposer")
    }
    assert any((parts["policy"][name] != parts["proposer"][name]).any() for name in parts["policy"])

    status, said, err = cli("eval", "--run-dir", run, "--temperature", 0)
    assert status == 0, err
    assert "n=6" in said
    status, said, err = cli("ask", "--run-dir", run, load_questions(world / "questions.jsonl")[0].text)
    assert (status, "Searches:" in said) == (0, True), err
    status, said, err = cli("export", run, tmp_path / "plain")
    assert status == 0, err
    plain = load_file(tmp_path / "plain/model.safetensors")
    assert all((plain[name] == weight).all() for name, weight in parts["policy"].items())

    out = tmp_path / "questions.jsonl"
    common = ("propose", world / "index", out, "--run-dir", run, "--count", 2)
    status, _, err = cli(*common)
    assert status == 0, err
    assert len(load_questions(out)) == 2
    assert json.loads((tmp_path / "questions.jsonl.state.json").read_text())["settings"]["checkpoint"]["step"] == 4
    for more, phrase in (
        (("--system", "ssp"), "holds settings for 'dr-zero'"),
        (("--model", "tiny"), "--run-dir brings its own config and model, tiny-weak"),
    ):
        status, _, err = cli(*common, *more)
        assert (status, phrase in " ".join(err.split())) == (2, True), err


@pytest.mark.merge
def test_ssp_by_its_command_and_the_questions_of_its_run(world, tmp_path, cli):
    run = tmp_path / "run"
    words = ("train", "ssp", "--index", world / "index", "--run-dir", run, *sets(SMALL), *held_out(world))
    for steps in (1, 2):
        status, said, err = cli(*words, "--steps", steps)
        assert status == 0, err
        assert f"step {steps}/{steps}" in said
    assert [row["step"] for row in rows(run / "metrics.jsonl")] == [0, 1, 2]
    assert cli("eval", "--run-dir", run)[0] == 0
    assert cli("export", run, tmp_path / "plain")[0] == 0
    status, said, err = cli("propose", world / "index", tmp_path / "q.jsonl", "--run-dir", run, "--count", 2)
    assert status == 0, err
    assert all(question.metadata["searches"] for question in load_questions(tmp_path / "q.jsonl"))


@pytest.mark.merge
def test_two_adapters_over_one_base_propose_and_are_exported(world, tmp_path, cli):
    pytest.importorskip("peft")
    run = tmp_path / "run"
    options = sets(PHASES | SMALL | SOLVER | {"lora.rank": 2, "dr_zero.proposer_steps": 1})
    status, _, err = cli("train", "dr-zero", "--corpus", world / "index", "--run-dir", run, *options)
    assert status == 0, err
    status, _, err = cli("propose", world / "index", tmp_path / "q.jsonl", "--run-dir", run, "--count", 2)
    assert status == 0, err
    assert len(load_questions(tmp_path / "q.jsonl")) == 2
    assert cli("export", run, tmp_path / "plain")[0] == 0
    assert not (tmp_path / "plain/adapter_config.json").exists()


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """An index of Markdown, HTML and text as people write them."""
    root = tmp_path_factory.mktemp("documents")
    corpus = root / "corpus"
    corpus.mkdir()
    (corpus / "kiwi.md").write_text("# The kiwi\n\nThe kiwi lives in New Zealand and lays one egg of 450 g a year.\n")
    (corpus / "moa.html").write_text(
        "<html><head><title>The moa</title></head><body><article><p>The moa lived in New Zealand too. Like the kiwi "
        "it could not fly, and it was hunted until about 1440.</p></article></body></html>"
    )
    (corpus / "auckland.txt").write_text("Auckland is the largest city of New Zealand. The kiwi is kept in its zoo.\n")
    build_index(corpus, root / "index", IndexPlan(stemming="english", max_words=40), console=Console(quiet=True))
    return root / "index"


SHORT = {
    "proposer.max_turns": 3,
    "proposer.max_tokens_per_turn": 16,
    "rollout.max_tokens_per_turn": 16,
    "rollout.max_total_tokens": 4000,
    "sampler.slots": 8,
}


def test_ssp_on_documents_goes_on_where_no_proposal_is_valid(documents, random_model, tmp_path, cli):
    model, run = random_model("tools", tmp_path / "model"), tmp_path / "run"
    words = ("train", "ssp", "--corpus", documents, "--model", model, "--run-dir", run, "--steps", 2)
    status, said, err = cli(*words, *sets(SMALL | SHORT))
    assert status == 0, err
    assert "valid 0.0%" in said
    metrics = rows(run / "metrics.jsonl")
    assert [row["selfplay/valid_rate"] for row in metrics] == [0.0, 0.0]
    for row in metrics:
        assert sum(share for name, share in row.items() if name.startswith("selfplay/rejected/")) == pytest.approx(1.0)
    before, after = (load_file(path / "model.safetensors") for path in (model, run / "checkpoints/step-000002/policy"))
    assert all((before[name] == weight).all() for name, weight in after.items())


def test_dr_zero_on_documents_ends_where_no_question_could_be_written(documents, random_model, tmp_path, cli):
    model = random_model("tags", tmp_path / "model")
    words = ("train", "dr-zero", "--corpus", documents, "--model", model, "--run-dir", tmp_path / "run")
    status, _, err = cli(*words, *sets(PHASES | SMALL | SOLVER | SHORT | {"dr_zero.proposer_steps": 1}))
    assert (status, "wrote no valid question in iteration 1" in err) == (2, True)
