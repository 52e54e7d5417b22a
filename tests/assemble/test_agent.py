"""Agents made from a config."""

import json
import shutil

import pytest
from evoseek.assemble.agent import Agent, evaluation_setting
from evoseek.config import load_config

from evoseek.cli.ask import answer_text
from evoseek.corpus.questions import save_questions
from evoseek.policy.load import load_policy, save_policy, tiny_policy_dir
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    passages = [Passage(f"{n}#0", str(n), "kiwi", f"kiwi {'kiwi ' * n}") for n in range(4)]
    LexicalIndex.build(root / "index", passages)
    save_questions(root / "q.jsonl", [Question(str(n), "kiwi", ("kiwi",)) for n in range(6)])
    questions = str(root / "q.jsonl")
    return {"search.index": str(root / "index"), "questions.path": questions, "evaluation.path": questions}


def test_held_out_questions_are_answered_as_in_training_by_default(places):
    config = load_config(options=places)
    assert len(evaluation_setting(config, Agent.load(config))[1]) == 6


def test_auto_finds_the_prompts_that_a_policy_was_made_for(tmp_path):
    shutil.copytree(tiny_policy_dir(), tmp_path / "copy")
    save_policy(load_policy("tiny"), tmp_path / "saved")
    for model in ("tiny", str(tmp_path / "copy"), str(tmp_path / "saved")):
        agent = Agent.load(load_config(options={"policy.model": model}))
        assert agent.prompts["solver"].text(question="who ?", format="tags") == "solve : who ?"
    settings = json.loads((tmp_path / "copy" / "config.json").read_text())
    del settings["evoseek_prompts"]
    (tmp_path / "copy" / "config.json").write_text(json.dumps(settings))
    agent = Agent.load(load_config(options={"policy.model": str(tmp_path / "copy")}))
    assert "<search>" in agent.prompts["solver"].text(question="who ?", format="tags")


def test_only_passages_that_hold_the_answer_are_named_as_such():
    found = (Passage("a#0", "a", "Kalo", "Its mayor is MERI ."), Passage("b#0", "b", "Vesu", "Its mayor is Tor ."))
    result = ToolResult(ToolCall("search", {"query": "mayor"}), "", found)
    trajectory = Trajectory("t", Question("q", "?", ()), "solver", (), (), (result,), StopReason.ANSWERED, "Meri")
    searches, support = answer_text(trajectory).split("Passages that hold the answer:")
    assert "1. search: mayor  ->  Kalo, Vesu" in searches
    assert "[a#0] Kalo: Its mayor is MERI ." in support
    assert "Vesu" not in support
