"""Preparing questions for training: filtering by a judge, and finding contamination."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from rich.console import Console

from evoseek.corpus.questions import load_questions, save_questions
from evoseek.corpus.resumable_jsonl import open_growing_file
from evoseek.data.contamination import ClosedBook, ContaminationCheck, Overlap
from evoseek.data.question_filter import Check, Finding, JudgeCheck, check_questions, load_findings
from evoseek.env.environments import ReaderEnv
from evoseek.errors import ConfigError, EvoseekError
from evoseek.files import check_new_file
from evoseek.report.printable import say, say_left_out
from evoseek.report.progress import STOPPING_AFTER_BATCH, CountProgress
from evoseek.reward.functions import AnswerReward
from evoseek.runs import with_digests
from evoseek.training.context import Context
from evoseek.training.inputs import inputs_of
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.sources import read_questions
from evoseek.types import Question


def filter_questions(context: Context, source: Path, out: Path, *, console: Console) -> bool:
    """Sort questions by the settings' judge, or go on with that: those that are good go to `out`.

    Returns False if Ctrl-C ended it. Raises EvoseekError, also if not one is good.
    """
    settings = context.settings
    deciding = {"judge": {"model", "base_url", "temperature", "max_tokens"}, "policy": {"prompts"}}
    judge = with_digests(settings.model_dump(include=deciding), inputs_of(settings))
    identity = {**judge, "seed": settings.run.seed}

    def make_check() -> Check:
        return JudgeCheck(*context.chat("judge"))

    return _sort(source, out, make_check, identity, max_undecided=settings.run.max_invalid, console=console)


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
            "No model was given whose knowledge is looked into: name the one that is to be trained (--model, or "
            "policy.model), or look for overlap alone (--samples 0)."
        )
    identity = {
        "evaluation": sorted(_hash(path) for path in evaluation),
        "samples": samples,
        "words": words,
        "likeness": likeness,
        "model": with_digests(settings.model_dump(mode="json", include={"policy", "rollout"}), inputs_of(settings))
        if samples
        else {},
        "seed": settings.run.seed,
    }

    def make_check() -> Check:
        overlap = Overlap((q for path in evaluation for q in load_questions(path)), words=words, likeness=likeness)
        return ContaminationCheck(overlap, closed_book_of(context, samples) if samples else None)

    return _sort(source, out, make_check, identity, max_undecided=settings.run.max_invalid, console=console)


def closed_book_of(context: Context, samples: int) -> ClosedBook:
    """The check that the settings' policy does not know an answer already, by exact match at temperature 1."""
    agent = context.agent
    renderer = agent.renderer(())
    env = ReaderEnv((), agent.prompts, renderer.format)
    return ClosedBook(agent.roller(env, renderer, temperature=1.0), AnswerReward("exact_match"), samples)


def _sort(
    source: Path,
    out: Path,
    make_check: Callable[[], Check],
    settings: Mapping[str, object],
    *,
    max_undecided: float,
    console: Console,
) -> bool:
    """Check a file of questions, and write the kept, the dropped and the undecided ones to one file each.

    The findings are appended to a separate file, from which the work is resumed; the three files are derived from it.
    """
    findings = out.with_suffix(".findings.jsonl")
    if not findings.exists() or not findings.stat().st_size:  # an error before the first batch leaves an empty file
        for path in (out, _dropped(out), _undecided(out)):
            check_new_file(path)
    questions = read_questions(str(source), setting="the file of questions")
    with (
        open_growing_file(findings, {"questions": _hash(source), **settings}) as file,
        stop_on_interrupt(lambda: say(console, STOPPING_AFTER_BATCH)) as interrupted,
        CountProgress(console, "questions") as progress,
    ):
        checking = check_questions(
            questions, make_check(), file, max_undecided=max_undecided, should_stop=interrupted, progress=progress
        )
        done = asyncio.run(checking)
    if done < len(questions):
        say(console, f"Stopped after {done} of {len(questions)} questions. The same command resumes from there.")
        return False
    _finish(out, load_findings(findings), console)
    return True


def _finish(out: Path, found: Sequence[tuple[Question, Finding]], console: Console) -> None:
    for keep, path in ((True, out), (False, _dropped(out)), (None, _undecided(out))):
        if chosen := [question for question, finding in found if finding.keep is keep]:
            save_questions(path, chosen)
    dropped = Counter(finding.reason for _, finding in found if finding.keep is False)
    why = ", ".join(f"{number} {reason}" for reason, number in dropped.most_common())
    if dropped:
        say(console, f"{dropped.total()} of {len(found)} questions are in {_dropped(out)}: {why}.")
    undecided = [finding.reason for _, finding in found if finding.keep is None]
    say_left_out(console, f"of {len(found)} questions are not decided, and in {_undecided(out)}", undecided)
    _say_passes([finding for _, finding in found], console)
    kept = len(found) - dropped.total() - len(undecided)
    if not kept:
        raise EvoseekError(f"Not one of {len(found)} questions is left, so {out} was not written.")
    say(console, f"{kept} of {len(found)} questions are kept, in {out}.")


def _say_passes(findings: Sequence[Finding], console: Console) -> None:
    """The number of right closed-book answers of a question, and the number of its answers."""
    asked = [finding.details for finding in findings if "samples" in finding.details]
    if not asked:
        return
    passes = Counter(int(str(details["right"])) for details in asked)
    answered, samples = (sum(int(str(details[key])) for details in asked) for key in ("answered", "samples"))
    said = ", ".join(f"{right}: {number}" for right, number in sorted(passes.items()))
    say(console, f"Questions by the number of closed-book answers that are right: {said}.")
    say(console, f"{answered} of {samples} samples held an answer at all; one without is never right.")


def _dropped(out: Path) -> Path:
    return out.with_suffix(".dropped.jsonl")


def _undecided(out: Path) -> Path:
    return out.with_suffix(".undecided.jsonl")


def _hash(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Give a file of questions.") from error
