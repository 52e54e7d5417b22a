"""The text of a new project file: small, commented, with the settings that a project begins with."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evoseek.corpus.questions import load_questions
from evoseek.files import expanded
from evoseek.policy.source import SHIPPED, origin
from evoseek.recipes.catalogue import recipes
from evoseek.reward.answer import usable_question

SELF_PLAY = ("dr-zero", "ssp")
_SIZES = {"tiny": "tiny", "smollm2": "smollm2", "-3b": "3b", "-7b": "7b"}  # part of a model's name, and its recipes
_MAX_WORDS = {"search-r1/smollm2": 40, "dr-zero/smollm2": 40}  # recipes that bound what a model reads
_STAGES = {"search-r1/smollm2": "search-r1/hops"}  # without them, questions of one hop teach it to search but once

_HEAD = """\
# An evoseek project: `evoseek index`, `train`, `eval`, `ask` and `serve` read this file in this folder and in those
# below it (elsewhere with --project). Options on the command line win. Paths are relative to this file.
# `evoseek parts system {system}` lists every setting, `evoseek doctor` checks these.

[project]
documents = {documents}
run = "run"                # what `evoseek train` writes, and `eval` and `ask` use
"""
_TINY = (
    "The tiny policy reads nothing but generated worlds: it shows that all works, and learns nothing from documents."
)
_WARM = (
    "SmolLM2 writes neither searches nor questions by itself: show it some first. FILE has demonstrations "
    "(docs/guide.md); then give `--model warm`, or name it in evoseek.toml:\n"
    "  evoseek sft --config sft/smollm2{longer} --demonstrations FILE --run-dir warm"
)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a project is to be: absolute paths, the model or the endpoint (NAME@URL), the system."""

    documents: Path
    model: str | None
    endpoint: str | None
    system: str
    questions: Path | None = None

    @property
    def origin(self) -> str:
        """The name of the model that is trained, or that a run which is trained on began with, in lower case."""
        return origin(self.model or "").lower()

    @property
    def recipes(self) -> list[str]:
        """The recipe that fits the system and the model, if there is one, and the one that lies over it where the
        questions say their hops. Raises DataError for questions that cannot be read."""
        name = self.origin
        found = (f"{self.system}/{size}" for part, size in _SIZES.items() if part in name)
        fitting = [recipe for recipe in found if recipe in recipes()][:1]
        over = [_STAGES[recipe] for recipe in fitting if recipe in _STAGES and self._say_hops()]
        return fitting + over

    def _say_hops(self) -> bool:
        """Whether there are questions of one hop and of two, and all say which they are."""
        questions = load_questions(self.questions, check=usable_question) if self.questions else []
        return {question.metadata.get("hops") for question in questions} == {1, 2}

    @property
    def needs_questions(self) -> bool:
        """Whether a file of questions is to be named."""
        return self.system not in (*SELF_PLAY, "sft") and not self.endpoint


def project_text(wishes: Wishes, folder: Path) -> str:
    """The file for a project in this folder."""
    lines = [_HEAD.format(system=wishes.system, documents=_path(wishes.documents, folder)).rstrip()]
    if fitting := wishes.recipes:
        named = _text(fitting[0]) if len(fitting) == 1 else json.dumps(fitting)
        lines.append(f"recipe = {named}   # settings beneath these; `evoseek recipes` prints them")
    if longest := next((_MAX_WORDS[recipe] for recipe in fitting if recipe in _MAX_WORDS), None):
        lines.append(f"max_words = {longest}             # of a passage: several have to fit what the model reads")
    lines += ["", "[search]", 'index = "index"            # what `evoseek index` writes']
    if wishes.endpoint:
        name, _, url = wishes.endpoint.partition("@")
        lines += [
            "",
            "[answerer]                    # who answers",
            f"model = {_text(name)}",
            f"base_url = {_text(url)}",
        ]
        lines.append('# api_key_env = "MY_KEY"     # environment variable with the key')
        return "\n".join(lines) + "\n"
    lines += ["", "[run]", f"system = {_text(wishes.system)}"]
    lines += ["", "[policy]", f"model = {_text(_model(wishes.model or 'tiny', folder))}"]
    if wishes.questions or wishes.needs_questions:
        path = _path(wishes.questions, folder) if wishes.questions else '"questions.jsonl"'
        table = "questions" if wishes.needs_questions else "evaluation"
        lines += ["", f"[{table}]", f"path = {path}   # JSON lines: question, golden_answers"]
    else:
        lines += ["", "# [evaluation]", '# path = "held-out.jsonl"   # labelled questions, if you have some']
    return "\n".join(lines) + "\n"


def notes(wishes: Wishes, folder: Path) -> Iterator[str]:
    """What a user should know, and the commands that follow."""
    if wishes.origin in SHIPPED:
        yield _TINY
    is_untrained = wishes.origin == (wishes.model or "").lower()  # not a run that began with it
    if "smollm2" in wishes.origin and is_untrained and wishes.system != "sft":
        yield _WARM.format(longer=" --set rollout.max_tokens_per_turn=96" if wishes.system in SELF_PLAY else "")
    here = "" if folder.absolute() == Path.cwd() else f"  cd {shlex.quote(str(folder))}\n"
    trains = "" if wishes.endpoint else "  evoseek train\n  evoseek eval\n"
    yield f'Next:\n{here}  evoseek doctor\n  evoseek index\n{trains}  evoseek ask "..."'


def _model(model: str, folder: Path) -> str:
    path = expanded(model)
    if model in SHIPPED:
        return model
    return json.loads(_path(path.absolute(), folder)) if path.exists() else model


def _path(path: Path, folder: Path) -> str:
    inside = path.is_relative_to(folder)
    return _text(os.path.relpath(path, folder) if inside else str(path))


def _text(text: str) -> str:
    """As TOML spells it."""
    return json.dumps(text, ensure_ascii=False)
