"""Every setting reaches the object that it is for."""

import asyncio
import json
import shutil

import pytest

from evoseek.assemble import Agent, evaluation_setting, search_r1_loop
from evoseek.commands.ask import answer_text
from evoseek.config import load_config
from evoseek.corpus.questions import save_questions
from evoseek.loss.clipped import ClippedLoss
from evoseek.policy.load import load_policy, save_policy, tiny_policy_dir
from evoseek.rollout.limits import Limits
from evoseek.runs import RunDirectory
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory

OPTIONS = {
    "search.top_k": 2,
    "questions.per_step": 3,
    "rollout.group_size": 5,
    "rollout.temperature": 0.75,
    "rollout.slots": 7,
    "rollout.max_turns": 4,
    "rollout.max_tool_calls": 3,
    "rollout.max_tokens_per_turn": 6,
    "rollout.max_total_tokens": 90,
    "rollout.deadline_s": 50.0,
    "reward.metric": "f1",
    "algorithm.scale": "none",
    "algorithm.clip_low": 0.15,
    "algorithm.clip_high": 0.35,
    "algorithm.aggregate": "sequence-sum",
    "learner.learning_rate": 1e-5,
    "learner.warmup_steps": 9,
    "learner.weight_decay": 0.07,
    "learner.betas": [0.8, 0.95],
    "learner.max_grad_norm": 0.4,
    "learner.token_budget": 333,
    "learner.bf16": True,
    "evaluation.every": 6,
    "evaluation.limit": 2,
    "evaluation.temperature": 0.25,
    "run.seed": 11,
    "run.steps": 8,
    "run.checkpoint_every": 3,
    "run.keep_checkpoints": 4,
    "run.max_invalid": 0.2,
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    root = tmp_path_factory.mktemp("places")
    passages = [Passage(f"{n}#0", str(n), "kiwi", f"kiwi {'kiwi ' * n}") for n in range(4)]
    LexicalIndex.build(root / "index", passages)
    save_questions(root / "q.jsonl", [Question(str(n), "kiwi", ("kiwi",)) for n in range(6)])
    questions = str(root / "q.jsonl")
    return {"search.index": str(root / "index"), "questions.path": questions, "evaluation.path": questions}


def test_every_option_differs_from_its_default():
    defaults = load_config()
    for key, value in OPTIONS.items():
        section, name = key.split(".")
        assert getattr(getattr(defaults, section), name) != value


def test_every_option_reaches_its_object(places, tmp_path, monkeypatch):
    asked = []

    async def note(questions, **options):
        asked.append((len(questions), options))
        return type("Nothing", (), {"metrics": lambda self: {}})()

    monkeypatch.setattr("evoseek.assemble.evaluate", note)
    loop = search_r1_loop(load_config(options=places | OPTIONS), RunDirectory(tmp_path), notify=print)
    system, learner = loop.system, loop.system.learner
    limits = Limits(max_turns=4, max_tool_calls=3, max_tokens_per_turn=6, max_total_tokens=90, deadline_s=50.0)

    assert system.limits == limits
    assert (system.questions_per_step, system.group_size, system.temperature, system.seed) == (3, 5, 0.75, 11)
    assert (system.scale, system.reward.metric) == ("none", "f1")
    assert system.sampler.max_length == 90
    assert len(system.sampler._slots) == 7
    found = asyncio.run(system.env.tools["search"](ToolCall("search", {"query": "kiwi"})))
    assert len(found.passages) == 2

    assert learner.loss == ClippedLoss(0.15, 0.35, "sequence-sum")
    groups = learner.optimizer.param_groups
    assert {(group["lr"], tuple(group["betas"])) for group in groups} == {(1e-5, (0.8, 0.95))}
    assert {group["weight_decay"] for group in groups} == {0.07, 0.0}
    assert (learner.warmup_steps, learner.max_grad_norm, learner.token_budget) == (9, 0.4, 333)
    assert (learner.bf16, learner.logprobs.temperature) == (True, 0.75)

    assert (loop.steps, loop.checkpoint_every, loop.evaluate_every, loop.max_invalid) == (8, 3, 6, 0.2)
    assert loop.checkpoints.keep_last == 4
    asyncio.run(loop.evaluate(0))
    [(number, options)] = asked
    assert (number, options["temperature"], options["seed"], options["limits"]) == (2, 0.25, 11, limits)
    assert (options["metric"], options["reward"].metric) == ("f1", "f1")


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
    assert "1. mayor  ->  Kalo, Vesu" in searches
    assert "[a#0] Kalo: Its mayor is MERI ." in support
    assert "Vesu" not in support
