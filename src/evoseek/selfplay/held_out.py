"""The questions that self-play wrote and never trained on: what a run without labelled questions can be scored on.

A written question is held out if no rollout of the run's solver is about it, nor about another one with the same words.
Its answer is the proposer's: it passed the run's rules and checks, and nobody else has looked at it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evoseek.corpus.questions import load_questions
from evoseek.corpus.resumable_jsonl import ResumableJsonl
from evoseek.errors import ConfigError
from evoseek.runs import RunDirectory
from evoseek.selfplay.duplicates import NearDuplicates
from evoseek.types import Question


def held_out_questions(run: RunDirectory) -> tuple[list[Question], str]:
    """The written questions of a run that its solver never met, or if there is none, all of them; and in words what
    they are.

    Raises ConfigError if none was written, with what to do; DataError for a damaged file.
    """
    written = load_questions(run.questions) if run.questions.is_file() and run.questions.stat().st_size else []
    met = NearDuplicates()
    for role, text in _asked(run.trajectories):
        if role == "solver":
            met.remember(text)
    unseen = [question for question in written if met.is_new(question.text)]
    more = f"`evoseek propose {_index(run)} held-out.jsonl --run-dir {run.path} --count 50` writes new ones"
    if not written:
        raise ConfigError(
            f"There are no questions to score with: none were named, and self-play has written none in {run.path}. "
            f"Name labelled ones with --questions (or as evaluation.path), or train on: {more}."
        )
    which = f"{len(unseen)} of {len(written)} questions that self-play wrote in {run.path} and never trained on"
    if not unseen:
        which = f"{len(written)} questions that self-play wrote in {run.path}, on all of which it was trained: {more}"
    return unseen or written, (
        f"No labelled questions were named. Scored on the {which}. Their answers are the proposer's, checked by the "
        "run's own rules alone: the score says whether solver and proposer agree, not whether they are right."
    )


def _asked(trajectories: Path) -> Iterator[tuple[str, str]]:
    """Role and question's text of every rollout."""
    yield from ResumableJsonl(trajectories).rows(_role_and_question, "rollout with a role and a question")


def _role_and_question(row: Any) -> tuple[str, str]:
    return str(row["role"]), str(row["question"]["text"])


def _index(run: RunDirectory) -> str:
    """The index of the run, for a command line."""
    try:
        search: Any = json.loads(run.config.read_text(encoding="utf-8"))["search"]
        return str(search["index"] or "INDEX")
    except (OSError, ValueError, KeyError, TypeError):
        return "INDEX"
