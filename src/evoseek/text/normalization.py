"""How well an answer matches the golden answers: the metrics of open-domain question answering.

Each takes `(prediction, golden_answers)` and returns the best value over the golden answers, in [0, 1]. Exact match and
`f1` are SQuAD's (arXiv 1606.05250); `set_f1` compares sets of words and keeps articles. Papers report the plain
substring match as subEM. An answer can win it by listing many candidates, or by chance ("scarcity" contains "car"), so
train on the guarded variant.

SQuAD's normal form confuses -40 with 40 and C++ with C, and distinguishes O’Brien from O'Brien. The metrics above keep
it (`normalise`), to be comparable with papers. Everything else compares answers by `comparable`.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from evoseek.errors import DataError
from evoseek.text.language import is_refusal
from evoseek.text.scripts import find_citations, fold_characters, keep_signs
from evoseek.types import Question, Trajectory

_PUNCTUATION_REMOVED = str.maketrans("", "", string.punctuation)
_PUNCTUATION_TO_SPACE = str.maketrans(string.punctuation, " " * len(string.punctuation))
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ARTICLE_WORDS = frozenset({"a", "an", "the"})

SPARE_WORDS = 10  # how many more words than the golden answer a guarded match may have

_YES_NO = {"yes", "no"}

RIGHT_FROM = 0.7
"""The default threshold of a graded metric above which a solver's answer counts as right. A three-word answer with two
extra words passes (0.75). A two-word name with a wrong first name (0.5) and a three-word date with a wrong day (0.67)
do not.

This holds only for two or three words. Longer wrong answers pass by F1: University of South Carolina for University of
North Carolina (0.75), Treaty of Paris 1783 for 1763 (0.75), King George IV of England for George III (0.8). "Not Meri
Tolu" passes for Meri Tolu, too (0.8). If no wrong answer may pass, require an exact match."""

AnswerMetric = Callable[[str, Sequence[str]], float]


def normalise(text: str) -> str:
    """Return SQuAD's normal form: lower case, no ASCII punctuation, no English articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION_REMOVED)).split())


def comparable(text: str) -> str:
    """Normalise as `normalise`, with one form for each character in any script, but keep the signs of numbers and
    names: `1 000` is `1000`, `-40` is not `40`, `3.5` is not `35`, `C++` is not `C`. A text of signs alone is
    normalised by `normalise`."""
    words = keep_signs(fold_characters(text), _unpunctuated, grouped=" ").split()
    return " ".join(word for word in words if word not in _ARTICLE_WORDS) or normalise(text)


def _unpunctuated(character: str, is_between_digits: bool) -> str:
    category = unicodedata.category(character)
    if is_between_digits:
        return character
    if character in string.punctuation or category[0] == "P":
        return ""
    return " " if category in ("So", "Cc") else character


def exact_match(prediction: str, golden_answers: Sequence[str]) -> float:
    """Return 1 if the normalised prediction equals a normalised golden answer (EM)."""
    predicted = normalise(prediction)
    return float(any(predicted == normalise(golden) for golden in golden_answers))


def substring_match(prediction: str, golden_answers: Sequence[str]) -> float:
    """Return 1 if a normalised golden answer occurs anywhere in the normalised prediction (subEM).

    A golden answer that normalises to nothing occurs in everything: clean such data with `usable_question`.
    """
    predicted = normalise(prediction)
    return float(any(normalise(golden) in predicted for golden in golden_answers))


def guarded_substring_match(prediction: str, golden_answers: Sequence[str]) -> float:
    """Return 1 if a golden answer occurs as whole words in a prediction at most `SPARE_WORDS` longer, both
    `comparable`.

    Spaces separate words, so scripts without spaces need an exact match. An answer that says both yes and no matches
    neither.
    """
    predicted = comparable(prediction).split()
    if set(predicted) >= _YES_NO:
        golden_answers = [golden for golden in golden_answers if comparable(golden) not in _YES_NO]
    return float(any(_contains_words(predicted, comparable(golden).split()) for golden in golden_answers))


def f1(prediction: str, golden_answers: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall over the multisets of normalised words."""
    return f1_of_kept(prediction, prediction, golden_answers)


def f1_of_kept(kept: str, prediction: str, golden_answers: Sequence[str]) -> float:
    """Return `f1` where only the kept words of a prediction can match, but all its words count."""
    words, written = normalise(kept).split(), len(normalise(prediction).split())
    return max((_overlap_f1(words, normalise(golden).split(), written) for golden in golden_answers), default=0.0)


def set_f1(prediction: str, golden_answers: Sequence[str]) -> float:
    """Return F1 over *sets* of words, articles kept, punctuation as spaces: DeepResearcher's (arXiv 2504.03160)."""
    predicted = word_set(prediction)
    return max((_overlap_f1(predicted, word_set(golden)) for golden in golden_answers), default=0.0)


def word_set(text: str) -> list[str]:
    """Return the words that `set_f1` compares: lower case, punctuation read as a space, each word once, in order."""
    return list(dict.fromkeys(text.lower().translate(_PUNCTUATION_TO_SPACE).split()))


METRICS: Mapping[str, AnswerMetric] = {
    "exact_match": exact_match,
    "substring_match": substring_match,
    "guarded_substring_match": guarded_substring_match,
    "f1": f1,
    "set_f1": set_f1,
}

GRADED = ("f1", "set_f1")
"""The metrics with values between 0 and 1."""


SCORES_REFUSALS = (*METRICS, "cited_f1")
"""The rewards that can train on questions marked as unanswerable."""


def is_right_refusal(trajectory: Trajectory) -> bool:
    """Return whether an answer refuses (`is_refusal`) a question marked as unanswerable, the only right answer there,
    as in SQuAD 2.0 (arXiv 1806.03822). A rollout without an answer does not refuse."""
    return not trajectory.question.is_answerable and is_refusal(trajectory.answer)


def answer_value(metric: str, trajectory: Trajectory) -> float:
    """Score the trajectory's answer, without its citations, by a metric of `METRICS`. If the question is unanswerable,
    a refusal scores 1 and anything else 0. No answer scores 0."""
    answer, question = trajectory.answer, trajectory.question
    if answer is None or not question.is_answerable:
        return float(is_right_refusal(trajectory))
    return METRICS[metric](find_citations(answer)[0], question.golden_answers)


def usable_question(question: Question) -> Question:
    """Return the question without golden answers that normalise to nothing. Raises DataError if no answer remains.

    Such an answer ("The", "?!") would be contained in, or equal to, answers that say nothing.
    """
    if not question.golden_answers:
        problem = (
            "has no golden answers; at least one is needed to score an answer. Add one or remove the question."
            if question.is_answerable
            else "is marked as unanswerable, which evaluations can use, and training by one of the rewards "
            f"{', '.join(SCORES_REFUSALS)} (reward.name). Set one of these, or remove the question."
        )
        raise DataError(f"Question {question.id!r} ({question.text!r}) {problem}")
    usable = tuple(golden for golden in question.golden_answers if normalise(golden))
    if not usable:
        raise DataError(
            f"Question {question.id!r} ({question.text!r}) has the golden answer {question.golden_answers[0]!r}, "
            "which is empty without punctuation and articles, so that any answer could match. Correct or remove it."
        )
    return question if len(usable) == len(question.golden_answers) else replace(question, golden_answers=usable)


def evaluable_question(question: Question) -> Question:
    """Apply `usable_question`, but keep a question marked as unanswerable, which needs no golden answers: for
    evaluation, and for training by one of `SCORES_REFUSALS`."""
    return usable_question(question) if question.is_answerable else question


def _contains_words(words: list[str], wanted: list[str]) -> bool:
    if not wanted or len(words) > len(wanted) + SPARE_WORDS:
        return False
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words) - len(wanted) + 1))


def _overlap_f1(predicted: Sequence[str], golden: Sequence[str], written: int | None = None) -> float:
    """Return 2 common / (n + m), rounded once: equal quotients are equal rewards, whose advantages are exactly 0.
    Through precision and recall, the last bit would depend on the lengths."""
    common = sum((Counter(predicted) & Counter(golden)).values())
    return 2 * common / ((len(predicted) if written is None else written) + len(golden)) if common else 0.0
