"""Sorting out questions that are useless for training, by up to three checks, the cheapest first.

    overlap       it shares n consecutive words with an evaluation question (13 as for GPT-3, arXiv 2005.14165,
                  appendix C), or is a near-duplicate of one (MinHash, `text.duplicates`)
    judge         by a judge model's verdict, its answer is time-sensitive, subjective or harmful (DeepResearcher,
                  arXiv 2504.03160, section 4.3)
    closed book   one of k answers that a base model draws without searching is right, so that it cannot teach searching
                  (DeepResearcher: pass@10)

Words are in SQuAD's normal form (`text.normalization.normalise`). Verdicts are recorded batch by batch. An undecided
question is neither kept nor dropped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import inputs_of
from evoseek.curation.batches import BatchWork, Made
from evoseek.errors import ConfigError, EvoseekError, ToolError
from evoseek.protocols import Chat, RewardFn
from evoseek.questions.questions import load_questions, parse_question, question_row, save_questions
from evoseek.reward.functions import AnswerReward
from evoseek.reward.judge import label_form, on_one_line, parse_label
from evoseek.rollout.environments import ReaderEnv
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.roller import Roller, score
from evoseek.storage.files import check_new_file, file_digest
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.storage.runs import with_digests
from evoseek.text.duplicates import NearDuplicates
from evoseek.text.normalization import evaluable_question, normalise
from evoseek.text.printable import say, say_left_out
from evoseek.types import Invalid, Message, Outcome, Question, Scored, Trajectory

LABELS = ("good", "harmful", "time-sensitive", "subjective")
FORM = label_form(LABELS)
BATCH = 128  # questions checked concurrently and recorded together


@dataclass(frozen=True, slots=True)
class QuestionVerdict:
    """The verdict whether to keep a question (None: undecided), and why, in a word or, if a check failed, in a
    sentence."""

    keep: bool | None
    reason: str
    details: Mapping[str, object] = field(default_factory=dict[str, object])


QuestionCheck = Callable[[Question], Awaitable[QuestionVerdict]]
"""Checks one question. Raises ToolError if it cannot decide."""


class Overlap:
    """A `QuestionCheck` for overlap with evaluation questions.

    It looks for `words` consecutive words of an evaluation question, or all of a shorter one, also within a longer
    text. The last argument is the least Jaccard similarity of near-duplicates, over word 3-shingles, as estimated by
    MinHash (1: the same words). Raises ConfigError for less than one word or a similarity not above 0 and at most 1.
    """

    def __init__(self, evaluation: Iterable[Question], *, words: int = 13, likeness: float = 0.8) -> None:
        if words < 1:
            raise ConfigError(f"An overlap of {words} words cannot be found. Give at least 1 word.")
        self._alike = NearDuplicates(likeness)
        self._runs: dict[str, str] = {}
        lengths: set[int] = set()
        for question in evaluation:
            text = normalise(question.text).split()
            if text:
                lengths.add(length := min(words, len(text)))
                self._runs |= dict.fromkeys(_runs(text, length), question.id)
                self._alike.remember(question.text)
        self._lengths = sorted(lengths, reverse=True)

    async def __call__(self, question: Question) -> QuestionVerdict:
        words = normalise(question.text).split()
        for length in self._lengths:
            if run := next((run for run in _runs(words, length) if run in self._runs), None):
                return QuestionVerdict(False, "shared words", {"words": run, "question": self._runs[run]})
        is_new = self._alike.is_new(question.text, remember=False)
        return QuestionVerdict(True, "no overlap") if is_new else QuestionVerdict(False, "likeness")


def _runs(words: Sequence[str], length: int) -> Iterator[str]:
    return (" ".join(words[start : start + length]) for start in range(len(words) - length + 1))


class JudgeCheck:
    """A `QuestionCheck` by a model, asked with question_filter.jinja of a prompt set and read strictly."""

    def __init__(self, chat: Chat, prompts: PromptSet) -> None:
        self._chat, self._template = chat, prompts["question_filter"]

    async def __call__(self, question: Question) -> QuestionVerdict:
        messages = [Message("user", self._template.marked(question=on_one_line(question.text)))]
        label = parse_label(await self._chat.chat(messages, key=f"filter/{question.id}", form=FORM), LABELS)
        return QuestionVerdict(label == "good", label)


@dataclass(frozen=True, slots=True)
class ClosedBook:
    """A `QuestionCheck` whether one of `samples` answers is right, with a reward of 1. `roller` is a base model without
    search.

    A model that never answers in the requested form seems to know nothing, so `details` reports the numbers of
    `samples` without failures, of `answered` and of `right` ones. If some samples failed and no other is right, the
    question stays undecided.
    """

    roller: Roller
    correct: RewardFn
    samples: int = 10

    @classmethod
    def of(cls, context: Context, samples: int) -> ClosedBook:
        """Build the check with the settings' policy, by exact match at temperature 1."""
        agent, renderer = context.agent, context.agent.renderer(())
        env = ReaderEnv((), agent.prompts, renderer.format)
        return cls(agent.roller(env, renderer, temperature=1.0), AnswerReward("exact_match"), samples)

    async def __call__(self, question: Question) -> QuestionVerdict:
        if not self.roller.has_room(question):
            raise ToolError(
                "The question leaves no room for an answer. Raise rollout.max_total_tokens, or leave the question out."
            )
        drawn = await asyncio.gather(*(self._sample(question, number) for number in range(self.samples)))
        outcomes = [outcome for _, outcome in drawn]
        failed = [outcome for outcome in outcomes if isinstance(outcome, Invalid)]
        right = sum(isinstance(outcome, Scored) and outcome.reward == 1.0 for outcome in outcomes)
        right *= question.is_answerable  # abstaining shows no knowledge
        answered = sum(trajectory.answer is not None for trajectory, _ in drawn)
        details = {"right": right, "answered": answered, "samples": len(drawn) - len(failed)}
        if not right and failed:
            return QuestionVerdict(None, failed[0].detail or str(failed[0].reason), details)
        return QuestionVerdict(False, "known", details) if right else QuestionVerdict(True, "unknown", details)

    async def _sample(self, question: Question, number: int) -> tuple[Trajectory, Outcome]:
        trajectory = await self.roller.one(question, f"contamination/{question.id}/{number}")
        return trajectory, await score(trajectory, self.correct)


@dataclass(frozen=True, slots=True)
class Filter:
    """The checks of questions: overlap with the files of `evaluation`, the settings' judge, if set (judge.model), and
    closed-book answers of the settings' policy, if set (policy.model)."""

    evaluation: Sequence[Path] = ()
    samples: int = 10
    words: int = 13
    likeness: float = 0.8

    def run(self, context: Context, source: Path, out: Path, *, console: Console) -> bool:
        """Check a file of questions, or resume this, and write the kept, the dropped and the undecided ones to one file
        each. The verdicts are appended to a separate file, from which the three files derive.

        Returns False if Ctrl-C ended it. Raises EvoseekError, also if none is kept, if there is nothing to check, or if
        surely more than the share run.max_invalid of a batch stays undecided; nothing of the batch is then written.
        """
        verdicts = out.with_suffix(".findings.jsonl")
        if not verdicts.exists() or not verdicts.stat().st_size:  # an error before the first batch leaves an empty file
            for path in _files(out):
                check_new_file(path)
        questions = load_questions(source, check=evaluable_question)
        work = checking(self._checks(context), max_undecided=context.settings.run.max_invalid)
        begun_with = {"questions": file_digest(source), **self._identity(context)}
        if work.run(questions, verdicts, begun_with, console) is None:
            return False
        _finish(out, load_verdicts(verdicts), console)
        return True

    def _checks(self, context: Context) -> Sequence[QuestionCheck]:
        settings, checks = context.settings, list[QuestionCheck]()
        if self.evaluation:
            known = [question for path in self.evaluation for question in load_questions(path)]
            checks.append(Overlap(known, words=self.words, likeness=self.likeness))
        if settings.judge.model or settings.judge.base_url:
            checks.append(JudgeCheck(*context.chat("judge")))
        if self._is_closed_book(context):
            checks.append(ClosedBook.of(context, self.samples))
        if not checks:
            raise ConfigError(
                "There is nothing to check. Give files of evaluation questions (--evaluation), a judge (--judge), "
                "or the model to train (--model)."
            )
        return checks

    def _identity(self, context: Context) -> dict[str, object]:
        settings = context.settings
        deciding: dict[str, Any] = {"judge": {"model", "base_url", "temperature", "max_tokens"}, "policy": {"prompts"}}
        if is_asked := self._is_closed_book(context):
            deciding |= {"policy": True, "rollout": True}
        return {
            "evaluation": sorted(map(file_digest, self.evaluation)),
            "words": self.words,
            "likeness": self.likeness,
            "samples": self.samples if is_asked else 0,
            "seed": settings.run.seed,
            **with_digests(settings.model_dump(mode="json", include=deciding), inputs_of(settings)),
        }

    def _is_closed_book(self, context: Context) -> bool:
        return self.samples > 0 and "model" in context.settings.policy.model_fields_set


def checking(
    checks: Sequence[QuestionCheck], *, max_undecided: float = 1.0
) -> BatchWork[Question, tuple[Question, QuestionVerdict]]:
    """Return the work that checks questions, each until a check does not keep it; an undecided one counts as failed."""

    async def one(question: Question, _: int) -> tuple[Question, QuestionVerdict]:
        verdict = QuestionVerdict(True, "")
        try:
            for check in checks:
                if not (verdict := await check(question)).keep:
                    break
        except ToolError as error:
            verdict = QuestionVerdict(None, str(error))
        return question, verdict

    def made_of(checked: Sequence[tuple[Question, QuestionVerdict]]) -> Made:
        rows = [{"question": question_row(question), **asdict(verdict)} for question, verdict in checked]
        undecided = [verdict.reason for _, verdict in checked if verdict.keep is None]
        return Made(rows, {}, undecided, len(checked))

    return BatchWork(one, made_of, BATCH, "questions", max_undecided)


def load_verdicts(path: Path) -> list[tuple[Question, QuestionVerdict]]:
    """Return the verdicts of `checking`, in order. Raises DataError for any other line."""

    def verdict(row: Any) -> tuple[Question, QuestionVerdict]:
        return parse_question(row["question"], ""), QuestionVerdict(row["keep"], row["reason"], row["details"])

    return list(ResumableJsonl(path).rows(verdict, "verdict"))


def _finish(out: Path, found: Sequence[tuple[Question, QuestionVerdict]], console: Console) -> None:
    kept, dropped_file, undecided_file = _files(out)
    for keep, path in ((True, kept), (False, dropped_file), (None, undecided_file)):
        if chosen := [question for question, verdict in found if verdict.keep is keep]:
            save_questions(path, chosen)
    dropped = Counter(verdict.reason for _, verdict in found if verdict.keep is False)
    why = ", ".join(f"{number} {reason}" for reason, number in dropped.most_common())
    if dropped:
        say(console, f"{dropped.total()} of {len(found)} questions are in {dropped_file}: {why}.")
    undecided = [verdict.reason for _, verdict in found if verdict.keep is None]
    say_left_out(console, f"of {len(found)} questions are not decided, and in {undecided_file}", undecided)
    _say_passes([verdict for _, verdict in found], console)
    count = len(found) - dropped.total() - len(undecided)
    if not count:
        raise EvoseekError(
            f"All {len(found)} questions were filtered out, so {out} was not written. Give other questions or checks."
        )
    say(console, f"{count} of {len(found)} questions are kept, in {out}.")


def _say_passes(verdicts: Sequence[QuestionVerdict], console: Console) -> None:
    asked = [verdict.details for verdict in verdicts if "samples" in verdict.details]
    if not asked:
        return
    passes = Counter(int(str(details["right"])) for details in asked)
    answered, samples = (sum(int(str(details[key])) for details in asked) for key in ("answered", "samples"))
    said = ", ".join(f"{right}: {number}" for right, number in sorted(passes.items()))
    say(console, f"Questions by the number of closed-book answers that are right: {said}.")
    say(console, f"{answered} of {samples} samples held an answer at all; one without is never right.")


def _files(out: Path) -> tuple[Path, Path, Path]:
    return out, out.with_suffix(".dropped.jsonl"), out.with_suffix(".undecided.jsonl")
