"""What a user's own parts do wrong is named, and never becomes a reward; a run is resumed with the same parts."""

import asyncio
from pathlib import Path

import pytest
from rich.console import Console
from tests.doubles.scripted import ScriptedChat

from evoseek.assembly.context import Context, Objects
from evoseek.assembly.sources import load_settings
from evoseek.config.registry import find
from evoseek.credit import CriticCredit
from evoseek.errors import ConfigError, TrainingError
from evoseek.loss.likelihood import ReinforceLoss
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.tools import SearchTool
from evoseek.run import Run
from evoseek.search.calling import search
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.zerosearch.engine import SimulatedEngine
from evoseek.types import Passage, ToolResult
from evoseek.world.world import make_world

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    make_world(folder, "train", 0, 40, (1, 2), entities=200)
    return folder


def run_of(world, directory, *, steps=1, settings=None, **objects):
    given = {
        "search.index": str(world / "index"),
        "questions.path": str(world / "questions.jsonl"),
        "questions.per_step": 2,
        "rollout.group_size": 2,
        "run.steps": steps,
        "run.checkpoint_every": 1,
        **(settings or {}),
    }
    return Run("search-r1", directory, settings=given, console=QUIET, **objects)


class Unbound:
    is_local = True

    async def search(self, queries, k):
        return [[] for _ in queries]


def half(trajectory):
    return 0.5


def zero(trajectory):
    return 0.0


def broken(trajectory):
    raise KeyError("score")


def test_a_run_is_resumed_with_the_objects_that_it_was_begun_with(world, tmp_path):
    run_of(world, tmp_path / "run", reward=half).train()
    with pytest.raises(ConfigError, match=r"objects\.reward was '.*half', now None"):
        run_of(world, tmp_path / "run", steps=2).train()
    with pytest.raises(ConfigError, match=r"objects\.reward was '.*half', now '.*zero'"):
        run_of(world, tmp_path / "run", steps=2, reward=zero).train()
    assert run_of(world, tmp_path / "run", steps=2, reward=half).train() == 2


def test_a_run_is_resumed_with_the_same_code_of_a_part(world, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_reward_of_now.py").write_text("def reward(trajectory):\n    return 0.5\n")
    settings = {"reward": "my_reward_of_now:reward"}
    run_of(world, tmp_path / "run", settings=settings).train()
    (tmp_path / "my_reward_of_now.py").write_text("def reward(trajectory):\n    return 1.0\n")
    with pytest.raises(ConfigError, match=r"reward \(my_reward_of_now:reward\) was .* holds something else"):
        run_of(world, tmp_path / "run", steps=2, settings=settings).train()


def test_a_reward_that_fails_is_named(world, tmp_path):
    with pytest.raises(TrainingError, match=r"The reward reward failed for the rollout .*KeyError: 'score'"):
        run_of(world, tmp_path / "run", reward=broken).train()


class Tool(SearchTool):
    """The usual search, with one fault."""

    def __init__(self, fault):
        self.fault = fault

    name = "search"
    schema = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}  # noqa: RUF012

    def for_question(self, question, trajectory_id):
        return None if self.fault == "unbound" else self

    async def __call__(self, call):
        return "Lisbon" if self.fault == "text" else ToolResult(call, "nothing")


def test_a_tool_that_gives_no_tool_for_a_rollout_is_named_and_nothing_is_scored(world, tmp_path):
    with pytest.raises(ConfigError, match="The tool search gave None for a rollout"):
        run_of(world, tmp_path / "run", settings={"tools": []}, tools=[Tool("unbound")]).train()


def test_a_tool_that_gives_no_result_fails_its_rollouts(world, tmp_path):
    with pytest.raises(TrainingError, match="expected a ToolResult"):
        run_of(world, tmp_path / "run", settings={"tools": [], "run.pause_s": 0}, tools=[Tool("text")]).train()


def test_two_tools_of_one_name_are_refused(world, tmp_path):
    with pytest.raises(ConfigError, match="Two tools have the name 'search'"):
        run_of(world, tmp_path / "run", tools=[Tool("")]).train()


def test_objects_are_checked_when_they_are_given(world, tmp_path):
    with pytest.raises(ConfigError, match="given as search, but it has no search"):
        run_of(world, tmp_path / "run", search=object())
    with pytest.raises(ConfigError, match="given as loss, but it has no contributes"):
        run_of(world, tmp_path / "run", loss=lambda inputs, totals: None)


@pytest.mark.parametrize(
    ("system", "settings", "objects", "said"),
    [
        ("ssp", {}, {"credit": CriticCredit()}, "CriticCredit needs a critic, which ssp does not train"),
        ("dspo", {}, {"credit": CriticCredit()}, "CriticCredit needs a critic, which dspo does not train"),
        ("dspo", {}, {"loss": ReinforceLoss()}, r"the loss is ReinforceLoss, .* algorithm\.mini_batches is 4"),
        ("zerosearch", {"search.index": ""}, {"search": Unbound()}, "Unbound, is not a simulator"),
        ("deepresearcher", {"search.index": ""}, {"search": Unbound()}, "deepresearcher searches the web"),
    ],
)
def test_an_object_that_a_system_cannot_use_is_refused(world, tmp_path, system, settings, objects, said):
    places = {"search.index": str(world / "index"), "questions.path": str(world / "questions.jsonl"), **settings}
    if system == "ssp":
        del places["questions.path"]
    with pytest.raises(ConfigError, match=said):
        Run(system, tmp_path / "run", settings=places, console=QUIET, **objects).train()


def test_held_out_questions_of_zerosearch_are_never_answered_by_the_simulator(world):
    simulator = SimulatedEngine(ScriptedChat(lambda *_: "Document 1: meri"), load_prompts("tiny"), max_words=20, seed=0)
    index = str(world / "index")
    for own in ({"search.index": index}, {"search.index": index, "evaluation.index": index}):
        settings = load_settings(system="zerosearch", options=own)
        with Context(settings, objects=Objects(search=simulator)) as context:
            assert isinstance(context.held_out_engine, LexicalIndex)
    own = Unbound()
    with Context(load_settings(system="zerosearch"), objects=Objects(search=own)) as context:
        assert context.engine is own  # which answers, and does not train


def test_another_index_for_evaluation_needs_an_engine_by_name(world, tmp_path):
    settings = {"evaluation.index": str(world / "index"), "evaluation.path": str(world / "questions.jsonl")}
    run = run_of(world, tmp_path / "run", settings=settings, search=LexicalIndex.open(world / "index"))
    with pytest.raises(ConfigError, match=r"evaluation\.index is .* given as an object"):
        run.evaluate()


def test_an_engine_shows_no_more_passages_than_it_was_asked_for():
    class Many:
        is_local = True

        async def search(self, queries, k):
            return [[Passage(str(number), "d", "t", "x") for number in range(50)] for _ in queries]

    assert [len(found) for found in asyncio.run(search(Many(), ["a", "b"], 2))] == [2, 2]


def test_a_module_that_ends_the_program_is_an_error(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    Path(tmp_path / "ends_at_once.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ConfigError, match="Importing the reward 'ends_at_once:f' failed"):
        find("reward", "ends_at_once:f")


def test_gamma_and_lambda_are_not_exchanged():
    credit = CriticCredit.build(CriticCredit.Settings(name="gae", gamma=0.5, lam=0.25), None)
    advantages, returns = credit([0.0, 1.0], [0.0, 0.0])
    assert advantages == [0.5 * 0.25 + 0.5 * 0.0, 1.0]
    assert returns == advantages
    advantages, _ = credit([0.0, 1.0], [0.0, 1.0])
    assert advantages == [0.5, 0.0]  # gamma times the next value, and nothing by lambda


class FailingTracker:
    def __init__(self):
        self.steps = []

    def write(self, step, metrics):
        self.steps.append(step)
        raise ConnectionError("the server is gone")


def test_a_tracker_that_fails_never_stops_a_run(world, tmp_path):
    tracker = FailingTracker()
    settings = {"trackers": [{"name": "tensorboard"}]}
    assert run_of(world, tmp_path / "run", steps=2, settings=settings, trackers=[tracker]).train() == 2
    assert tracker.steps[-2:] == [1, 2]
    assert list((tmp_path / "run" / "tensorboard").iterdir())
