"""ZeroSearch as a whole: learnt without a search engine, used with one; and what a simulator does that is not there."""

import json
import re

import pytest
from tests.doubles.scripted import ScriptedChat

from evoseek.chat.endpoint import EndpointChat
from evoseek.questions.questions import save_questions
from evoseek.renderers.encoding import plain
from evoseek.rollout.prompts import load_prompts
from evoseek.search.lexical import LexicalIndex
from evoseek.systems.zerosearch.engine import SimulatedEngine, simulator_reply
from evoseek.world.world import World

ASKED = re.compile(r"simulate (useful|noisy) documents : (.*) is (.*) query (.*)", re.DOTALL)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Questions of a training world, which has no index; index and questions of an evaluation world."""
    root = tmp_path_factory.mktemp("worlds")
    worlds = {split: World.generate(5, 300, split) for split in ("train", "evaluation")}
    for split, count in (("train", 300), ("evaluation", 40)):
        save_questions(root / f"{split}.jsonl", worlds[split].questions(count, seed=5, hops=(2,)))
    LexicalIndex.build(root / "index", worlds["evaluation"].passages())
    return root, worlds["train"]


def words_of(places, run, *more):
    root, _ = places
    return (
        *("train", "zerosearch", "--run-dir", run, "--questions", root / "train.jsonl"),
        *("--set", "search.top_k=3", "--set", "questions.per_step=6", "--set", "run.pause_s=0", *more),
    )


def knows(world, index):
    """A simulator that knows the training world: useful documents are its articles, noisy ones are about others."""

    def script(messages, key):
        kind, _, _, query = ASKED.fullmatch(plain(messages[0].content).strip()).groups()
        found = [passage.text for passage in index.find(query, 6)]
        return simulator_reply(found[:3] if kind == "useful" else found[3:])

    return script


@pytest.mark.slow
def test_search_is_learnt_from_a_simulator_and_then_works_on_a_real_index(places, cli, tmp_path, monkeypatch):
    root, world = places
    chat = ScriptedChat(knows(world, LexicalIndex.build(tmp_path / "known", world.passages())))
    engine = SimulatedEngine(chat, load_prompts("tiny"), max_words=100, seed=0)
    monkeypatch.setattr("evoseek.systems.zerosearch.engine.simulated_engine", lambda *_, **__: engine)
    settings = {
        "reward.name": "exact_match",
        "credit.name": "group",
        "loss.name": "clipped",
        "loss.aggregate": "token-mean",
        "zerosearch.noise_end": 0.2,
        "evaluation.index": root / "index",
        "evaluation.path": root / "evaluation.jsonl",
        "evaluation.every": 8,
        "learner.learning_rate": 1e-3,
        "rollout.max_turns": 3,  # what two hops need
    }
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    status, _, err = cli(*words_of(places, tmp_path / "run", "--steps", 8, *sets))
    assert status == 0, err
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    held_out = [row["eval/reward"] for row in rows if "eval/reward" in row]
    assert held_out[0] < 0.2
    assert held_out[-1] > held_out[0] + 0.2
    trained = [row for row in rows if row["step"] > 0]
    assert sum(row["simulator/queries"] for row in trained) == len(chat.asked)
    noise = [row["simulator/noise"] for row in trained]
    assert noise == sorted(noise)
    assert noise[-1] == 0.2


def test_without_a_simulator_it_is_said_which_setting_is_missing(places, cli, tmp_path):
    status, _, err = cli(*words_of(places, tmp_path / "run"))
    assert status == 2
    assert "simulator.model is empty" in err
    assert not (tmp_path / "run" / "config.json").exists()


def test_an_endpoint_that_is_not_there_ends_the_run_with_its_name_and_trains_on_nothing(
    places, cli, tmp_path, monkeypatch
):
    monkeypatch.setitem(EndpointChat.__init__.__kwdefaults__, "attempts", 1)
    endpoint = ("--set", "simulator.model=x", "--set", "simulator.base_url=http://127.0.0.1:9/v1")
    status, out, err = cli(*words_of(places, tmp_path / "run", *endpoint))
    assert status == 2
    assert "127.0.0.1:9" in err
    assert "tool_failed" in err
    assert "Nothing was trained on the invalid ones" in out
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    assert all(row["simulator/failed"] == 1 for row in rows)
