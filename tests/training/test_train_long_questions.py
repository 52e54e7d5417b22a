"""Prompts without room to write: found before the first step, so that no run dies of one after it; and whatever an
error says to change before a run is resumed, a resumed run may change."""

import ast
import asyncio
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tools.tiny.tokenizer import tiny_tokenizer

import evoseek
from evoseek.assembly.sources import load_settings
from evoseek.config.sections import changeable, each_setting
from evoseek.errors import ConfigError
from evoseek.questions.questions import save_questions
from evoseek.renderers.tags import TagRenderer
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller, askable
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.training.train import train, training_loop
from evoseek.types import Passage, Question

LONG = "what is kalo ? " * 500


@pytest.fixture
def given_files(tmp_path, questions):
    """`given_files(system, **options)`: settings with an index, four questions whose second is too long, and two
    held-out ones whose first is."""
    LexicalIndex.build(tmp_path / "index", [Passage("0#0", "0", "kiwi", "kiwi")])
    long = [replace(question, text=LONG) if n == 1 else question for n, question in enumerate(questions)]
    save_questions(tmp_path / "q.jsonl", long)
    save_questions(tmp_path / "held_out.jsonl", [Question("h0", LONG, ("meri",)), Question("h1", "who?", ("meri",))])

    def make(**options):
        paths = {"search.index": "index", "questions.path": "q.jsonl", "evaluation.path": "held_out.jsonl"}
        own = {name: str(tmp_path / path) for name, path in paths.items()}
        small = {"questions.per_step": 3, "rollout.group_size": 2, "run.checkpoint_every": 1, "run.steps": 2}
        return load_settings(options=own | small | options)

    return make


def roller(limit):
    return Roller(
        SolverEnv([], load_prompts("tiny")), TagRenderer(tiny_tokenizer()), None, Limits(max_total_tokens=limit)
    )


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(20, 80))
def test_a_question_is_left_out_exactly_if_a_rollout_of_it_could_not_begin(lengths, limit):
    asked = [Question(str(number), "kalo " * length + "?", ("meri",)) for number, length in enumerate(lengths)]
    own = roller(limit)
    fitting = [question for question in asked if own.prompt_length(question) < limit]
    if not fitting:
        with pytest.raises(ConfigError, match="None is left"):
            askable(asked, own, setting="questions.path")
        return
    kept, words = askable(asked, own, setting="questions.path")
    assert kept == fitting
    assert bool(words) == (len(kept) < len(asked))
    assert words.startswith(f"{len(asked) - len(kept)} of {len(asked)} questions" if words else "")


def test_long_ones_are_left_out_counted_and_named_before_the_first_step_and_the_run_resumes(given_files, tmp_path):
    run, said = RunDirectory(tmp_path / "run"), []
    with run.locked(), training_loop(given_files(), run, notify=said.append) as loop:
        assert [question.id for question in loop.system.questions] == ["q0", "q2", "q3"]
        evaluated = asyncio.run(loop.evaluate(0))
    assert evaluated["eval/n"] == 1
    assert [text.partition(",")[0] for text in said if "left out" in text] == [
        "1 of 4 questions of questions.path are left out",
        "1 of 2 questions of evaluation.path are left out",
    ]
    assert any("ids: 'q1'." in text for text in said)
    assert any("ids: 'h0'." in text for text in said)
    for steps in (2, 3):
        with run.locked():
            assert train(given_files(**{"run.steps": steps}), run, console=Console(quiet=True)).step == steps


def test_a_later_stage_that_then_has_too_few_is_refused_before_the_first_step(given_files, tmp_path):
    stages = [{"name": "few", "steps": 1, "questions": {"per_step": 2}}, {"name": "all", "questions": {"per_step": 4}}]
    settings = given_files(stages=stages)
    with (
        pytest.raises(ConfigError, match=r"In the stage all: A step draws 4 .* there are only 3"),
        training_loop(settings, RunDirectory(tmp_path / "run"), notify=print),
    ):
        pass


def test_what_an_error_says_to_change_before_resuming_may_be_changed():
    """Every text of the source that sends a user back to the last checkpoint, and the settings that it names."""
    settings = load_settings()
    names = {name for name, *_ in each_setting(settings)}
    found = {}
    for path in Path(evoseek.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(piece.value) for piece in pieces if isinstance(piece, ast.Constant))
            for remedy in re.findall(r"[^.]*(?:\.\w[^.]*)*resume[sd]? from the last checkpoint", text):
                found[remedy] = [name for name in re.findall(r"\w+\.\w+", remedy) if name in names]
    assert any("learner.token_budget" in named for named in found.values())
    allowed = changeable(settings, "on_resume")
    for remedy, named in found.items():
        assert "rate" not in remedy.lower()  # which is compared
        for name in named:
            assert any(fnmatchcase(name, pattern) for pattern in allowed), (name, remedy)
