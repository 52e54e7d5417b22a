"""Demonstrations of what was right: none of a failure."""

import asyncio
from pathlib import Path

import pytest
from tests.doubles.scripted import ScriptedChat

from evoseek.assembly.context import Context
from evoseek.assembly.sources import load_settings
from evoseek.curation.collecting import CollectionLimits, collect_demonstrations, collecting
from evoseek.errors import ConfigError, ToolError
from evoseek.questions.demonstrations import load_demonstrations
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.run import converse
from evoseek.rollout.tools import SearchTool
from evoseek.storage.jsonl import open_growing_file
from evoseek.types import Passage, Question

QUESTIONS = [Question(name, f"what is {name} ?", ("meri",)) for name in "abcdef"]
SEARCH = "<think> so </think> <search> kalo </search>"
RIGHT, WRONG = "<think> it is </think> <answer> Meri </answer>", "<answer> lina </answer>"


class Engine:
    is_local = True

    async def search(self, queries, k):
        return [[Passage("a", "a", "kalo", "meri")] for _ in queries]


def roll_of(script):
    """Rollouts of a chat that says `script[question]`: for each attempt its replies, or an error."""

    def reply(messages, key):
        _, question, attempt, turn = key.split("/")
        said = script.get(question, [[SEARCH, RIGHT]])[int(attempt)][int(turn.removeprefix("turn-"))]
        if isinstance(said, Exception):
            raise said
        return said

    prompts = load_prompts("default")
    env = SolverEnv([SearchTool(Engine(), template=prompts["observation"])], prompts)
    chat = ScriptedChat(reply)
    return lambda question, name: converse(question, env=env, chat=chat, limits=Limits(), trajectory_id=name)


def collected(tmp_path, script, *, questions=QUESTIONS, limits=None):
    with open_growing_file(tmp_path / "d.jsonl", {}) as file:
        work = collecting(roll_of(script), AnswerReward(), limits or CollectionLimits())
        return asyncio.run(work.fill(questions, file))


def test_what_was_right_is_kept_as_a_demonstration_and_the_rest_is_counted(tmp_path):
    script = {"b": [[SEARCH, WRONG]], "c": [["who knows"]], "d": [[ToolError("down")]], "e": [["x", SEARCH]]}
    found = collected(tmp_path, script)
    assert found.done == 6
    assert found.counts == {"kept": 2, "right": 2, "wrong": 1, "malformed": 2, "failed": 1}
    assert found.failures == {"down": 1}
    first, second = load_demonstrations(tmp_path / "d.jsonl")
    assert (first.question, second.question) == (QUESTIONS[0], QUESTIONS[5])
    assert [(turn.thought, turn.query, turn.answer) for turn in first.turns] == [
        ("so", "kalo", None),
        ("it is", None, "Meri"),
    ]


def test_a_right_refusal_is_a_right_rollout_and_its_question_is_kept_whole(tmp_path):
    about = {"answerable": False, "hidden": ["a"]}
    refusal = "<answer> Not found in the documents. </answer>"
    questions = [Question("a", "what is a ?", (), about), Question("b", "what is b ?", (), about)]
    found = collected(tmp_path, {"a": [[SEARCH, refusal]]}, questions=questions)
    assert found.counts == {"kept": 1, "right": 1, "wrong": 1}
    (kept,) = load_demonstrations(tmp_path / "d.jsonl")
    assert (kept.question, kept.turns[-1].answer) == (questions[0], "Not found in the documents.")


def test_of_several_attempts_the_same_turns_are_kept_once_and_the_shortest_first(tmp_path):
    attempts = [[SEARCH, SEARCH, RIGHT], [SEARCH, RIGHT], [SEARCH, RIGHT], [WRONG], [RIGHT]]
    collected(tmp_path, {"a": attempts}, questions=QUESTIONS[:1], limits=CollectionLimits(5, per_question=2))
    assert [len(one.turns) for one in load_demonstrations(tmp_path / "d.jsonl")] == [1, 2]


def test_a_lower_reward_keeps_more(tmp_path):
    assert collected(tmp_path, {"a": [[WRONG]]}, limits=CollectionLimits(min_reward=0.0)).counts["kept"] == 6


def test_several_attempts_of_an_endpoint_that_always_says_the_same_are_refused(tmp_path):
    sets = ["answerer.base_url=http://127.0.0.1:9/v1", "answerer.model=m"]
    (tmp_path / "q.jsonl").write_text('{"question": "who ?", "golden_answers": ["meri"]}\n')
    settings = load_settings(options={"evaluation.path": str(tmp_path / "q.jsonl")}, sets=sets)
    with (
        Context(settings) as context,
        pytest.raises(ConfigError, match=r"at answerer.temperature 0 they are all"),
    ):
        collect_demonstrations(context, Path("d.jsonl"), CollectionLimits(2), limit=None, console=None)
