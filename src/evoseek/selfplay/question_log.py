"""The questions that self-play wrote: `questions.jsonl`, appended step by step, and read by a resumed run.

Each line is a question as `evoseek.questions.questions` reads it, with the `step` that wrote it in its metadata, so the
file can be trained on. A question is held out if no rollout of the run's solver is about it or one with the same words:
a run without labelled questions can be scored on such questions. The answers are the proposer's: they passed the run's
rules and checks, but no person has checked them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evoseek.errors import ConfigError, EvoseekError
from evoseek.questions.questions import load_questions, question_row
from evoseek.rollout.environments import task_of
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.storage.runs import RunDirectory, flatten
from evoseek.text.duplicates import NearDuplicates
from evoseek.types import Episode, Question, Scored

if TYPE_CHECKING:
    from evoseek.learner.distributed import Ranks


@dataclass(slots=True)
class QuestionLog:
    """The log at `path`. Resuming from a checkpoint cuts it to its length at that time.

    Its contents are cached, and read again only if its length has changed. The first of several `ranks` writes, then
    all read. `reserved` questions, the test set, are not trained on.
    """

    path: Path
    ranks: Ranks | None = None
    reserved: Container[str] = ()
    _known: list[Question] = field(default_factory=list[Question], init=False, repr=False, compare=False)
    _size: int = field(default=0, init=False, repr=False, compare=False)  # bytes of the file in `_known`

    def append(self, step: int, questions: Sequence[Question]) -> None:
        """Add the questions of a step; a collective. Raises RunError if the disk refuses them."""
        if self.ranks is None or self.ranks.is_first:
            self._write(step, questions)
        if self.ranks is not None:
            self.ranks.barrier()

    def _write(self, step: int, questions: Sequence[Question]) -> None:
        rows = [_row(question, step) for question in questions]
        log = ResumableJsonl(self.path)
        is_known = log.size == self._size
        log.append(rows)
        if is_known:
            self._known += map(_as_read, rows)
            self._size = log.size

    def read(self, first: int, last: int) -> list[Question]:
        """Return the trainable questions that the steps `first` to `last` wrote. Raises DataError for a damaged
        file."""
        size = ResumableJsonl(self.path).size
        if size != self._size:
            self._known, self._size = load_questions(self.path) if size else [], size
        written = (question for question in self._known if first <= int(str(question.metadata["step"])) <= last)
        return [question for question in written if question.text not in self.reserved]


def _row(question: Question, step: int) -> dict[str, object]:
    row = question_row(question)
    return {**row, "metadata": {**row["metadata"], "step": step}}


def _as_read(row: Mapping[str, object]) -> Question:
    """Return the question of a row as `load_questions` will read it."""
    read = json.loads(json.dumps(row))
    return Question(read["id"], read["question"].strip(), tuple(read["golden_answers"]), read["metadata"])


def draw_again(questions: Iterable[Question], count: int, seed: str) -> list[Question]:
    """Draw `count` of the questions in random order, none twice before all were drawn once; empty if there are none.

    The questions and the seed determine the draw, not their order.
    """
    rng = random.Random(f"{seed}/replay")
    pool = sorted(questions, key=lambda question: question.id)
    drawn: list[Question] = []
    while pool and len(drawn) < count:
        drawn += rng.sample(pool, min(len(pool), count - len(drawn)))
    return drawn


def best_questions(episodes: Sequence[Episode], earlier: Sequence[Question], near_duplicates: float) -> list[Question]:
    """Return every task's valid proposal with the best reward (the format reward, before the solver's rollouts), the
    first of equals; without duplicates of earlier ones."""
    best: dict[str, tuple[float, Question]] = {}
    for episode in episodes:
        if episode.question is None or not isinstance(episode.outcome, Scored):
            continue
        task, reward = task_of(episode.proposer.question).id, episode.outcome.reward
        if task not in best or reward > best[task][0]:
            best[task] = reward, episode.question
    seen = NearDuplicates(near_duplicates or 1.0)
    for question in earlier:
        seen.is_new(question.text)
    return [question for _, question in best.values() if seen.is_new(question.text)]


def held_out_questions(run: RunDirectory) -> tuple[list[Question], str]:
    """Return the questions that the run's cold start held out; or else the written questions that the solver was not
    trained on; or else all written questions. Also return a description of them.

    Raises ConfigError if none was written, DataError for a damaged file.
    """
    if run.held_out.is_file():
        questions = load_questions(run.held_out)
        return questions, (
            f"No labelled questions were named. Scored on the {len(questions)} questions that the cold start of "
            f"{run.path} wrote and held out. Rules took their answers from the documents: `evoseek review` "
            "estimates how many are right."
        )
    written = load_questions(run.questions) if run.questions.is_file() and run.questions.stat().st_size else []
    met = trained_on(run)
    unseen = [question for question in written if met.is_new(question.text)]
    more = f"`evoseek propose {_index(run)} held-out.jsonl --run-dir {run.path} --count 50` writes new ones"
    if not written:
        raise ConfigError(
            f"No questions were named, and self-play has written none in {run.path}. "
            f"Name labelled ones with --questions (or as evaluation.path), or continue training: {more}."
        )
    which = f"{len(unseen)} of {len(written)} questions that self-play wrote in {run.path} and never trained on"
    if not unseen:
        which = f"{len(written)} questions that self-play wrote in {run.path} and trained on, all of them: {more}"
    return unseen or written, (
        f"No labelled questions were named. Scored on the {which}. Their answers are the proposer's, checked "
        "only by the run's rules: the score measures whether solver and proposer agree, not whether they are right."
    )


def trained_on(run: RunDirectory) -> NearDuplicates:
    """Return the questions that a run's solver has answered, or its cold start demonstrated; questions with the same
    words count as known."""
    met = NearDuplicates()
    shown = run.held_out.with_name("demonstrations.jsonl")
    for text in ResumableJsonl(shown).rows(_demonstrated, "demonstration"):
        met.remember(text)
    rollouts = ResumableJsonl(run.trajectories).rows(_role_and_question, "rollout with a role and a question")
    for role, text in rollouts:
        if role == "solver":
            met.remember(text)
    return met


def _demonstrated(row: Any) -> str:
    return str(row.get("question", ""))  # a proposer's has none


def _role_and_question(row: Any) -> tuple[str, str]:
    return str(row["role"]), str(row["question"]["text"])


def _index(run: RunDirectory) -> str:
    try:
        return str(flatten(run.read_config()).get("search.index") or "INDEX") if run.config.is_file() else "INDEX"
    except (EvoseekError, AttributeError):  # damaged: another command says so
        return "INDEX"
