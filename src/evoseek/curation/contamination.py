"""Questions that are useless for training: a model already knows their answer, or they are in an evaluation set.

    closed book   of k answers that a base model draws without searching, one is right: searching could not be learnt
                  from it (DeepResearcher, arXiv 2504.03160, section 4.3: pass@10)
    overlap       it shares n words in a row with a question of an evaluation set (13 as for GPT-3, arXiv 2005.14165,
                  appendix C), or is like one (MinHash, `selfplay.duplicates`)

Words are those of SQuAD's normal form (`reward.answer.normalise`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import inputs_of
from evoseek.curation.sorting import Check, QuestionVerdict, sort_questions
from evoseek.errors import ConfigError, ToolError
from evoseek.protocols import RewardFn
from evoseek.questions.questions import load_questions
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import ReaderEnv
from evoseek.rollout.roller import Roller, score
from evoseek.storage.files import file_digest
from evoseek.storage.runs import with_digests
from evoseek.text.duplicates import NearDuplicates
from evoseek.text.normalization import normalise
from evoseek.types import Invalid, Outcome, Question, Scored, Trajectory


class Overlap:
    """Which texts overlap with evaluation questions.

    A run of `words` words of an evaluation question is looked for; of a shorter question all of it, also within a
    longer text. `likeness` is the Jaccard index of word 3-shingles from which two texts are alike, as MinHash estimates
    it (1: the same words). Raises ConfigError for less than one word or a likeness not above 0 and at most 1.
    """

    def __init__(self, evaluation: Iterable[Question], *, words: int = 13, likeness: float = 0.8) -> None:
        if words < 1:
            raise ConfigError(f"An overlap of {words} words cannot be looked for: expected at least 1.")
        self._alike = NearDuplicates(likeness)
        self._runs: dict[str, str] = {}
        lengths: set[int] = set()
        for question in evaluation:
            text = normalise(question.text).split()
            if text:
                lengths.add(length := min(words, len(text)))
                self._runs |= dict.fromkeys(runs(text, length), question.id)
                self._alike.remember(question.text)
        self._lengths = sorted(lengths, reverse=True)

    def __call__(self, text: str) -> QuestionVerdict | None:
        """What a text overlaps with; None if with nothing."""
        words = normalise(text).split()
        for length in self._lengths:
            if run := next((run for run in runs(words, length) if run in self._runs), None):
                return QuestionVerdict(False, "shared words", {"words": run, "question": self._runs[run]})
        return None if self._alike.is_new(text, remember=False) else QuestionVerdict(False, "likeness")


@dataclass(frozen=True, slots=True)
class ClosedBook:
    """A `Check`: is one of `samples` answers right, by a reward of 1? `roller` is a base model that cannot search.

    A model that never answers in the requested form seems to know nothing, so `details` reports how many samples were
    `answered` and how many were `right`, out of how many (`samples`, without those that failed). If some samples failed
    and none of the others is right, the question stays undecided.
    """

    roller: Roller
    correct: RewardFn
    samples: int = 10

    async def __call__(self, question: Question) -> QuestionVerdict:
        """Answer a question. Raises ToolError if it is too long for the model."""
        if not self.roller.has_room(question):
            raise ToolError(
                "The question leaves no room for an answer: raise rollout.max_total_tokens, or leave it out."
            )
        drawn = await asyncio.gather(*(self._sample(question, number) for number in range(self.samples)))
        outcomes = [outcome for _, outcome in drawn]
        failed = [outcome for outcome in outcomes if isinstance(outcome, Invalid)]
        right = sum(isinstance(outcome, Scored) and outcome.reward == 1.0 for outcome in outcomes)
        right *= question.is_answerable  # a refusal shows no knowledge
        answered = sum(trajectory.answer is not None for trajectory, _ in drawn)
        details = {"right": right, "answered": answered, "samples": len(drawn) - len(failed)}
        if not right and failed:
            return QuestionVerdict(None, failed[0].detail or str(failed[0].reason), details)
        return QuestionVerdict(False, "known", details) if right else QuestionVerdict(True, "unknown", details)

    async def _sample(self, question: Question, number: int) -> tuple[Trajectory, Outcome]:
        trajectory = await self.roller.one(question, f"contamination/{question.id}/{number}")
        return trajectory, await score(trajectory, self.correct)


@dataclass(frozen=True, slots=True)
class ContaminationCheck:
    """A `Check`: first for overlap, which costs little, then closed book (None: not)."""

    overlap: Overlap
    closed_book: ClosedBook | None = None

    async def __call__(self, question: Question) -> QuestionVerdict:
        """What is wrong with a question, if anything. Raises ToolError."""
        if found := self.overlap(question.text):
            return found
        return await self.closed_book(question) if self.closed_book else QuestionVerdict(True, "no overlap")


def find_contamination(
    context: Context,
    source: Path,
    out: Path,
    *,
    evaluation: Sequence[Path],
    samples: int,
    words: int,
    likeness: float,
    console: Console,
) -> bool:
    """Sort out questions that overlap with evaluation sets, or to which the settings' policy, without searching, gives
    a right answer in one of `samples` (0: no samples); exact match, temperature 1. Or resume that.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if nothing is left, or if there is nothing to look for.
    """
    settings = context.settings
    if not evaluation and not samples:
        raise ConfigError("There is nothing to look for: give files of evaluation questions, or more than 0 samples.")
    if samples and "model" not in settings.policy.model_fields_set:
        raise ConfigError(
            "No model to check for contamination: name the one to be trained (--model, or policy.model), or look for "
            "overlap alone (--samples 0)."
        )
    known = [question for path in evaluation for question in load_questions(path)]
    identity = {
        "evaluation": sorted(map(file_digest, evaluation)),
        "samples": samples,
        "words": words,
        "likeness": likeness,
        "model": with_digests(settings.model_dump(mode="json", include={"policy", "rollout"}), inputs_of(settings))
        if samples
        else {},
        "seed": settings.run.seed,
    }

    def make_check() -> Check:
        overlap = Overlap(known, words=words, likeness=likeness)
        return ContaminationCheck(overlap, closed_book_of(context, samples) if samples else None)

    return sort_questions(source, out, make_check, identity, max_undecided=settings.run.max_invalid, console=console)


def closed_book_of(context: Context, samples: int) -> ClosedBook:
    """The check that the settings' policy does not know an answer already, by exact match at temperature 1."""
    agent = context.agent
    renderer = agent.renderer(())
    env = ReaderEnv((), agent.prompts, renderer.format)
    return ClosedBook(agent.roller(env, renderer, temperature=1.0), AnswerReward("exact_match"), samples)


def runs(words: Sequence[str], length: int) -> Iterator[str]:
    """Every run of so many words."""
    return (" ".join(words[start : start + length]) for start in range(len(words) - length + 1))
