"""The bridge to verifiers as far as it needs no verifiers; `packages/verifiers/tests` has the rest."""

import asyncio
import sys
from types import ModuleType

import pytest
from tests.doubles.scripted import ScriptedChat

import evoseek_verifiers
from evoseek.errors import ConfigError
from evoseek.questions.questions import save_questions
from evoseek.rollout.roller import score
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question, Scored
from evoseek.world.world import World
from evoseek_verifiers.environment import Arguments, open_environment


@pytest.mark.parametrize("name", evoseek_verifiers.__all__)
def test_without_verifiers_the_error_names_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(ConfigError, match=r"pip install 'verifiers>=0\.4,<0\.5'"):
        getattr(evoseek_verifiers, name)


def test_another_module_that_is_missing_is_not_told_as_verifiers(monkeypatch):
    for name in ("verifiers", "verifiers.v1"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "evoseek.chat.endpoint", None)
    with pytest.raises(ModuleNotFoundError, match=r"evoseek\.chat\.endpoint"):
        _ = evoseek_verifiers.EvoseekEnv


def test_a_name_that_it_does_not_have():
    with pytest.raises(AttributeError, match="EvoseekGym"):
        _ = evoseek_verifiers.EvoseekGym


@pytest.fixture(scope="module")
def world():
    return open_environment(Arguments(world_entities=200, world_questions=4))


def test_by_default_it_asks_about_a_generated_world(world):
    again = open_environment(Arguments(world_entities=200, world_questions=4))
    other = open_environment(Arguments(world_entities=200, world_questions=4, world_split="train"))
    assert again is world
    assert [question.metadata["hops"] for question in world.questions] == [1, 2, 3, 4]
    assert not {q.text for q in world.questions} & {q.text for q in other.questions}
    assert (world.metric, world.limits.max_tool_calls, world.limits.max_malformed) == ("exact_match", 4, 2)


def test_a_world_is_that_of_its_seed_size_and_split():
    made = open_environment(Arguments(world_seed=3, world_entities=210, world_split="train", world_questions=2))
    expected = World.generate(3, 210, "train").questions(2, seed=3)
    assert [question.text for question in made.questions] == [question.text for question in expected]


def test_a_model_searches_the_world_and_is_scored(world):
    (subject, relation, answer), *_ = (question := world.questions[0]).metadata["chain"]
    chat = ScriptedChat(
        {"t/turn-0": f"<search> {subject} {relation} </search>", "t/turn-1": f"<answer> {answer} </answer>"}
    )
    trajectory = asyncio.run(world.model(chat).one(question, "t"))
    assert subject in trajectory.tool_results[0].text
    assert asyncio.run(score(trajectory, world.reward)) == Scored(1.0, {"exact_match": 1.0})


def test_arguments_are_settings_of_evoseek(tmp_path):
    LexicalIndex.build(tmp_path / "index", [Passage("kalo#0", "kalo", "Kalo", "Meri is the mayor of Kalo.")])
    save_questions(tmp_path / "questions.jsonl", [Question(f"q{n}", "Who?", ("Meri",)) for n in range(3)])
    given = {"questions": str(tmp_path / "questions.jsonl"), "index": str(tmp_path / "index")}
    settings = ["evaluation.limit=2", "rollout.max_malformed=0"]
    made = open_environment(
        Arguments(**given, reward="f1", max_calls=1, prompts="short", config=["search-r1/3b"], settings=settings)
    )
    assert ([question.id for question in made.questions], made.metric) == (["q0", "q1"], "f1")
    assert (made.limits.max_tool_calls, made.limits.max_malformed) == (1, 0)
    with pytest.raises(ConfigError, match=r"No index was given: set index \(evaluation\.index\)"):
        open_environment(Arguments(questions=given["questions"]))
    with pytest.raises(ConfigError, match="reward"):
        open_environment(Arguments(**given, reward="exact_mach"))


@pytest.mark.parametrize(
    ("given", "searched"),
    [
        ({"index": "/an/index"}, "/an/index"),
        ({"settings": ["search.index=/another"]}, "/another"),
        ({"config": ["deepresearcher/tiny"]}, "the web"),
    ],
)
def test_what_is_searched_without_questions_is_refused(given, searched):
    with pytest.raises(ConfigError, match=rf"given what is searched \({searched}\), but no questions"):
        open_environment(Arguments(**given))


def test_the_default_prompts_are_those_of_the_set_default(world):
    named = [
        open_environment(Arguments(world_entities=200, world_questions=4, prompts=name))
        for name in ("default", "short")
    ]
    default, short = ([one.env.messages(one.questions[0])] for one in named)
    assert [world.env.messages(world.questions[0])] == default != short
