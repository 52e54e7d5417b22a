"""The programs in examples/, each run in an empty folder, and the names that they import from `evoseek`."""

import ast
import json
import re
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest

import evoseek
from evoseek.rollout.record import read_trajectories

ROOT = Path(__file__).parents[1]
EXAMPLES = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
PRINTED = {
    "ask": "What is Humi Jeje's employer\\? (?i:pipajo)\n  from .*: Humi Jeje's employer is Pipajo",
    "evaluate_and_compare": r"results/tiny-weak - results/tiny: [+-]\d\.\d+ \[.\d\.\d+, .\d\.\d+\], p = \d\.\d+",
    "own_reward": r"mean reward: 0\.\d+",
    "own_search": r"mean reward: 0\.\d+",
    "own_tool": "steps: 2",
    "train_on_documents": r"steps: 4\n(.|\n)*from Humi Jeje\.txt",
}


def test_an_example_is_short_and_says_what_it_shows_and_what_it_needs():
    assert EXAMPLES.keys() == PRINTED.keys()
    for name, path in EXAMPLES.items():
        text = path.read_text()
        assert len(text.splitlines()) <= 40, name
        assert len(ast.get_docstring(ast.parse(text)).splitlines()) == 2, name
        assert "tests" not in re.findall(r"^(?:from|import) (\w+)", text, re.M), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_in_an_empty_folder(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_path(str(EXAMPLES[name]), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(PRINTED[name], printed), printed
    if check := CHECKS.get(name):
        check(tmp_path)


def rollouts(folder):
    """What the policy did in training, with its outcome."""
    read = list(read_trajectories(folder / "run" / "trajectories.jsonl"))
    assert len(read) == 2 * 4 * 8
    return read


def check_reward(folder):
    parts = [record.outcome.parts for record in rollouts(folder)]
    assert {(0.9, 1.0, 1.0), (1.0, 1.0, 0.0)} <= {(p["reward"], p["right"], p["more_searches"]) for p in parts}


def check_tool(folder):
    results = [result for record in rollouts(folder) for result in record.trajectory.tool_results]
    assert any(result.passages for result in results)
    assert all(len(result.text.split()) <= 3 * 20 for result in results)


def check_search(folder):
    titles = {passage.title for record in rollouts(folder) for passage in record.trajectory.passages}
    assert titles
    config = json.loads((folder / "run" / "config.json").read_text())
    assert (config["search"]["index"], config["objects"]["search"]) == ("", "__main__.FullText")


def check_compared(folder):
    for model in ("tiny", "tiny-weak"):
        assert json.loads((folder / "results" / model / "results.json").read_text())["model"].endswith(model)


CHECKS = {
    "own_reward": check_reward,
    "own_tool": check_tool,
    "own_search": check_search,
    "evaluate_and_compare": check_compared,
}


def test_every_name_of_the_package_is_typed_and_is_imported_when_it_is_used():
    body = ast.parse(Path(evoseek.__file__).read_text()).body
    (typed,) = (node for node in body if isinstance(node, ast.If))
    homes = {alias.name: node.module for node in typed.body for alias in node.names}
    assert sorted([*homes, "__version__"]) == sorted(evoseek.__all__) == dir(evoseek)
    for name, module in homes.items():
        assert getattr(evoseek, name) is getattr(import_module(module), name)
