"""The parts of docs/extend.md: one file and one recipe each, as printed, in a folder outside of the checkout."""

import ast
import importlib
import json
import math
import re
import shutil
from contextlib import chdir
from pathlib import Path
from runpy import run_path

import pytest
from rich.console import Console

from evoseek.config.registry import find
from evoseek.config.trust import VARIABLE
from evoseek.credit import advantages_of
from evoseek.rollout.record import read_trajectories
from evoseek.run import Run
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.metrics import read_metrics
from evoseek.types import Action, Passage, Question, Segment, StopReason, ToolCall, ToolResult, Trajectory

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extend.md").read_text()
PAGES = run_path(str(ROOT / "tests" / "docs" / "pages.py"))
FILES = PAGES["files"](PAGE)
(*_, MAKE_WORLD), (_, *TRAIN), (_, *EVAL) = PAGES["commands"](PAGE)
KINDS = {
    "short": "reward",
    "first_words": "tool",
    "word_count": "search",
    "mtgrpo": "credit",
    "tree": "system with trees",
    "cispo": "loss",
    "hardest": "system",
}
SMALL = {"run.steps": 2, "questions.per_step": 3, "rollout.group_size": 4, "rollout.max_turns": 3, "run.seed": 1}
RECIPES = {KINDS[Path(name).stem]: name for name in sorted(FILES) if name.endswith(".toml")}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The world of the page with its questions, index and passages."""
    place = tmp_path_factory.mktemp("page")
    with chdir(place):
        exec(MAKE_WORLD)
    folder = place / "world"
    rows = [
        json.dumps({"id": passage.id, "title": passage.title, "text": passage.text})
        for passage in LexicalIndex.open(folder / "index").passages()
    ]
    (folder / "passages.jsonl").write_text("\n".join(rows), encoding="utf-8")
    questions = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    (folder / "few.jsonl").write_text("\n".join(questions[:4]), encoding="utf-8")
    return folder


@pytest.fixture
def folder(world, tmp_path, monkeypatch):
    """A folder with the world, the page's files beside it, and nothing of the checkout."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for path in ("questions.jsonl", "few.jsonl", "passages.jsonl"):
        shutil.copy(world / path, tmp_path)
    shutil.copytree(world / "index", tmp_path / "index")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def settings(kind):
    index = {} if kind == "search" else {"search.index": "index"}
    return {**SMALL, **index, "questions.path": "questions.jsonl"}


def shows(kind, run: Path):
    """What only the extension can have done."""
    rows = read_metrics(run / "metrics.jsonl")
    rollouts = list(read_trajectories(run / "trajectories.jsonl"))
    assert [row["step"] for row in rows] == [1, 2]
    assert len(rollouts) == 24
    match kind:
        case "loss":
            assert all("cispo/cut_frac" in row for row in rows if "loss" in row)
            assert any("loss" in row for row in rows)
        case "reward":
            rewards = {record.outcome.reward for record in rollouts}
            assert rewards - {0.0, 1.0}  # answers of several words are worth less
        case "credit":
            samples = map(json.loads, (run / "samples.jsonl").read_text().splitlines())
            trained = {sample["id"]: sample["advantages"] for sample in samples}
            credit = importlib.import_module("mtgrpo").TurnCredit()
            for step in (1, 2):
                own = [record for record in rollouts if record.step == step]
                given = credit([r.outcome.reward for r in own], [r.group for r in own], [r.trajectory for r in own])
                for record, turns in zip(own, given, strict=True):
                    acted = [s for s in record.trajectory.segments if s.kind == "action"]
                    expected = [value for s, value in zip(acted, turns, strict=True) for _ in s.token_ids]
                    found = trained[record.trajectory.id]
                    assert (found if isinstance(found, list) else [found] * len(expected)) == expected
        case "system with trees":
            trajectories = {record.trajectory.id: record.trajectory for record in rollouts}
            grown = {id: trajectories[id.rpartition("/")[0]] for id in trajectories if id.count("/") == 3}
            assert len(grown) == 12  # half of all
            for id, root in grown.items():
                before = root.before(int(id.rpartition("/")[2]))
                assert trajectories[id].segments[0].token_ids == before.token_ids
        case "search" | "tool":
            found = [result for record in rollouts for result in record.trajectory.tool_results]
            assert any(result.passages for result in found)
            if kind == "tool":
                assert all(len(result.text.split()) <= 3 * (30 + 6) for result in found)
        case "system":
            assert [row["hardest/kept"] for row in rows] == [2.0, 2.0]  # of three groups, half


@pytest.mark.parametrize("kind", RECIPES)
def test_on_the_command_line(folder, processes, kind, monkeypatch):
    words = [f"{key}={value}" for key, value in settings(kind).items()]
    sets = [word for pair in words for word in ("--set", pair)]
    command = processes.start("train", "--config", RECIPES[kind], "--run-dir", "run", *sets)
    assert command.wait() == [0], command.said()
    shows(kind, folder / "run")
    monkeypatch.setenv(VARIABLE, str(folder))
    run = Run(directory="run", console=Console(quiet=True))  # with the run's own parts, by their names
    assert run.ask("where is the mayor of the town?").trajectory.stop_reason is not None
    assert 0 <= run.evaluate("few.jsonl").score.mean <= 1


def test_the_commands_of_the_page_make_a_world_train_on_it_and_evaluate(folder, processes, world, monkeypatch, cli):
    (folder / "world").symlink_to(world)
    command = processes.start(*TRAIN)
    assert command.wait() == [0], command.said()
    assert [row["step"] for row in read_metrics(folder / "runs" / "cispo" / "metrics.jsonl")] == [1, 2]
    monkeypatch.setenv(VARIABLE, "runs/cispo")
    status, out, err = cli(*EVAL)
    assert (status, "exact_match" in out) == (0, True), err


def objects(kind):
    """The parts as objects."""
    match kind:
        case "loss":
            return {"loss": importlib.import_module("cispo").CISPO(0.3), "settings": {"algorithm.mini_batches": 2}}
        case "credit":
            return {"credit": importlib.import_module("mtgrpo").TurnCredit()}
        case "system with trees":
            return {"system": "tree:Tree"}
        case "reward":
            return {"reward": importlib.import_module("short").short_answer}
        case "search":
            engine = importlib.import_module("word_count").WordCount
            return {"search": engine(engine.Settings(name="word_count:WordCount", passages="passages.jsonl"))}
        case "tool":
            tool = importlib.import_module("first_words").FirstWords
            return {"tools": [tool(LexicalIndex.open(Path("index")), 30, 3)], "settings": {"tools": []}}
        case _:
            return {"system": "hardest:Hardest"}


@pytest.mark.merge
@pytest.mark.parametrize("kind", RECIPES)
def test_from_python(folder, kind):
    given = objects(kind)
    own = given.pop("settings", {})
    run = Run(
        given.pop("system", "search-r1"),
        "run",
        settings={**settings(kind), **own},
        console=Console(quiet=True),
        **given,
    )
    assert run.train() == 2
    shows(kind, folder / "run")
    if kind != "loss":  # a policy of a run is asked and scored with the same parts
        assert run.ask("where is the mayor of the town?").trajectory.stop_reason is not None
        assert 0 <= run.evaluate("few.jsonl").score.mean <= 1


def test_mt_grpo_gives_a_turn_the_outcome_s_advantage_and_its_own(tmp_path):
    """Rewards 1, 0, and what the first turn found, 1, 0: both +- 0.7071 (mean 1/2, std 0.7071), together +- 1.4142."""
    own = {}
    exec(FILES["mtgrpo.py"], own)
    question, call = Question("q", "who?", ("Meri",)), ToolCall("search", {"query": "a"})
    actions = (Action("", (call,)), Action("", answer="Meri"))
    segments = (Segment("prompt", (1,)), *(Segment("action", (2,), (0.0,)),) * 2)
    results = [ToolResult(call, "", (Passage("p", "d", "Kalo", text),)) for text in ("It is MERI.", "It is Tolu.")]
    both = [
        Trajectory(f"t{n}", question, "solver", segments, actions, (result,), StopReason.ANSWERED)
        for n, result in enumerate(results)
    ]
    half = math.sqrt(0.5)
    for rewards, expected in (
        ([1.0, 0.0], [[2 * half, half], [-2 * half, -half]]),
        ([1.0, 1.0], [[half, 0.0], [-half, 0.0]]),
        ([None, 1.0], [None, [-half, 0.0]]),
    ):
        found = advantages_of(own["TurnCredit"](), rewards, "aa", both)
        for one, other in zip(found, expected, strict=True):
            assert one is other is None or one == pytest.approx(other, abs=1e-5)


def test_every_kind_of_part_is_on_the_page():
    assert RECIPES.keys() == set(KINDS.values())
    assert {f"{name}.{end}" for name in KINDS for end in ("py", "toml")} == FILES.keys()


def test_the_block_that_makes_a_run_of_all_the_parts_runs_as_printed(folder, monkeypatch):
    """But that it makes two small steps on the CPU's smallest scale, and prints nothing else than it says."""
    (text,) = (block.text for block in PAGES["blocks"](PAGE) if "run.train()" in block.text)
    (folder / "my-index").symlink_to(folder / "index")
    (folder / "few.jsonl").rename(folder / "held-out.jsonl")
    small = {**SMALL, "questions.path": "questions.jsonl", "tools": []}
    written = ast.literal_eval(re.search(r"settings=(\{.*?\})", text)[1])
    assert written == {**written, "questions.path": "questions.jsonl", "tools": []}
    (folder / "block.py").write_text(re.sub(r"settings=\{.*?\}", f"settings={small!r}", text))
    run = run_path(str(folder / "block.py"))["run"]
    assert [row["step"] for row in read_metrics(run.directory.metrics)] == [1, 2]


def test_an_own_part_is_found_by_its_path(folder):
    assert find("loss", "cispo:CISPO") is importlib.import_module("cispo").CISPO
