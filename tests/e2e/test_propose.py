"""`evoseek propose` by the command line, on a generated world and on real documents."""

import json
import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.doubles.earlier import begun_earlier
from tests.doubles.scripted import ScriptedSampler

from evoseek.assembly.agent import Agent
from evoseek.assembly.sources import load_settings
from evoseek.questions.questions import load_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.selfplay.proposing import propose
from evoseek.text.normalization import usable_question
from evoseek.training.plan import TrainingContext
from evoseek.world.world import World

ROOT = Path(__file__).parents[2]
SMALL = {
    "proposer.max_tokens_per_turn": 64,
    "rollout.max_turns": 3,
    "selfplay.proposals_per_step": 8,
    "proposer.attempts": 2,
}
SHORT = {
    "selfplay.proposals_per_step": 4,
    "proposer.attempts": 2,
    "proposer.max_turns": 2,
    "proposer.max_tokens_per_turn": 16,
    "sampler.slots": 8,
    "rollout.max_tokens_per_turn": 16,
    "rollout.max_total_tokens": 8000,
}


def sets(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The index of a small generated world."""
    path = tmp_path_factory.mktemp("world") / "index"
    LexicalIndex.build(path, World.generate(3, 200, "train").passages())
    return path


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """An index of this repository's own documents."""
    from evoseek.search.indexing import IndexPlan, build_index

    root = tmp_path_factory.mktemp("documents")
    (root / "corpus").mkdir()
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("src/evoseek/recipes/*/*.md")]
    for number, page in enumerate(sorted(pages)):
        (root / "corpus" / f"{number}-{page.name}").write_text(page.read_text())
    build_index(root / "corpus", root / "index", IndexPlan(), console=Console(quiet=True))
    return root / "index"


@pytest.mark.parametrize("system", ["ssp", "dr-zero"])
def test_questions_of_a_world_in_flashrags_shape_and_later_more_of_them(system, world, tmp_path, cli):
    out = tmp_path / "new" / "questions.jsonl"
    for count in (2, 5):
        if out.exists() and system == "dr-zero":  # which has a cold start
            begun_earlier(out)
        status, said, err = cli("propose", world, out, "--system", system, "--count", count, *sets(SMALL))
        assert status == 0, err
        assert f"{count} questions in" in said
        assert "Outcomes of the proposals" in said
    questions = load_questions(out, check=usable_question)
    assert len({question.text for question in questions}) == len(questions) == 5
    for question in questions:
        found = question.metadata
        assert 1 <= found["requested"] <= 4
        assert (0 <= found["pass_rate"] <= 1, found["attempts"]) == (True, 2)
        assert found["evidence"]
        assert all(passage["text"] and passage["title"] for passage in found["evidence"])
    status, said, err = cli("propose", world, out, "--system", system, "--count", 5, "--seed", 1, *sets(SMALL))
    assert (status, "run.seed was 0, now 1" in " ".join(err.split())) == (2, True)


@pytest.mark.merge
def test_ctrl_c_leaves_a_file_that_loads_and_the_same_command_goes_on(world, processes, tmp_path, cli):
    words = ["propose", str(world), str(tmp_path / "stopped.jsonl"), "--system", "dr-zero", *sets(SMALL)]
    command = processes.start(*words, "--count", 100000)
    assert command.interrupt_after("\nquestions ", signal.SIGINT) == [130]
    assert "The same command resumes from there" in command.said()
    written = len(load_questions(tmp_path / "stopped.jsonl"))
    assert written >= 5
    assert cli(*words, "--count", written + 5)[0] == 0
    assert cli("propose", world, tmp_path / "whole.jsonl", *words[3:], "--count", written + 5)[0] == 0
    assert (tmp_path / "stopped.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_what_a_user_gets_wrong_is_said_and_nothing_is_made(world, tmp_path, cli):
    (tmp_path / "mine.jsonl").write_text("{}\n")
    out = tmp_path / "q.jsonl"
    for words, phrase in (
        (("propose", world, tmp_path / "mine.jsonl"), "is there already"),
        (("propose", tmp_path / "nothing", out), str(tmp_path / "nothing")),
        (("propose", world, out, "--system", "search-r1"), "search-r1 has no proposer"),
        (("propose", world, out, "--system", "magic"), "There is no system 'magic'"),
        (("propose", world, out, "--run-dir", tmp_path), "holds no checkpoint"),
        (("propose", world, out, "--set", "proposer.ratio=[0, 0]"), "at least one share must be above 0"),
    ):
        status, _, err = cli(*words)
        assert (status, phrase in " ".join(err.split())) == (2, True), err
    assert not out.exists()
    assert (tmp_path / "mine.jsonl").read_text() == "{}\n"


@pytest.mark.parametrize("form", ["tools", pytest.param("tags", marks=pytest.mark.merge)])
def test_a_model_that_proposes_nothing_of_use_is_told_so_with_the_reasons(form, documents, random_model, tmp_path, cli):
    model, out = random_model(form, tmp_path / "model"), tmp_path / "q.jsonl"
    words = ("propose", documents, out, "--model", model, "--max-proposals", 8, *sets(SHORT))
    status, said, err = cli(*words)
    assert (status, "No question was written: none of 8 proposals" in " ".join(err.split())) == (2, True)
    assert "questions 0/100  8 proposals" in said
    assert out.read_bytes() == b""
    assert cli(*words)[0] == 2  # at once: the limit was reached
    assert json.loads((tmp_path / "q.jsonl.state.json").read_text())["reached"]["batches"] == 2


@pytest.mark.parametrize("form", ["tools", pytest.param("tags", marks=pytest.mark.merge)])
def test_a_model_that_proposes_well_gives_verified_questions_of_real_documents(
    form, documents, random_model, tmp_path, monkeypatch
):
    """What the model would say comes from a script; all else, also its tokenizer and its template, is real."""
    config = load_settings(
        system="ssp",
        options={
            "search.index": str(documents),
            "policy.model": str(random_model(form, tmp_path / "model")),
            "policy.format": form,
            "filters.min_words": 10,
            **SHORT,
            "proposer.max_tokens_per_turn": 500,
            "rollout.max_tokens_per_turn": 200,
        },
    )
    with TrainingContext(config) as context:
        player = context.agent
    decode, tokenizer = player.decode, player.policy.tokenizer
    end = tokenizer.eos_token if form == "tools" else ""

    def script(request):
        context = decode(request.token_ids)
        if "/proposals/" not in request.trajectory_id:  # a reader or a solver, who can both spell
            spelt = re.search(r"spelt ([\d ]+) in code points", context)[1]
            return f"<answer> {''.join(chr(int(code)) for code in spelt.split())} </answer>{end}"
        answer = re.findall(r"to which the answer is: ([^<\n]*)", context)[-1].strip()
        if request.turn == 0:
            call = json.dumps({"name": "search", "arguments": {"query": answer}})
            return f"<tool_call>{call}</tool_call>{end}" if form == "tools" else f"<search> {answer} </search>"
        spelt = " ".join(str(ord(letter)) for letter in answer)
        question = f"Which of the things that are described there is spelt {spelt} in code points?"
        return f"<question> {question} </question> <answer> {answer} </answer>{end}"

    scripted = replace(player, sampler=ScriptedSampler(script, tokenizer))
    monkeypatch.setattr(Agent, "of", lambda *_, **__: scripted)
    out = tmp_path / "q.jsonl"
    assert propose(config, None, out, count=6, max_proposals=None, console=Console(quiet=True))
    questions = load_questions(out, check=usable_question)
    assert len(questions) == 6
    index = LexicalIndex.open(documents)
    for question in questions:
        assert question.metadata["pass_rate"] == 1.0
        for passage in question.metadata["evidence"]:
            assert index.get(passage["id"]).text == passage["text"]
