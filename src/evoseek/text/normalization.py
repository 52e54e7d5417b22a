"""How well an answer matches the golden answers: the metrics of open-domain question answering.

Each takes `(prediction, golden_answers)` and gives the best value over the golden answers, in [0, 1]. Exact match and
`f1` are those of SQuAD (arXiv 1606.05250); `set_f1` compares sets of words and keeps articles. The plain substring
match is what papers report as subEM; it is easily won by an answer that lists many candidates or happens to contain the
letters ("scarcity" contains "car"), so the guarded variant is the one to train on.

SQuAD's normal form takes -40 for 40 and C++ for C, and O’Brien for another name than O'Brien. Papers are compared by
it, so the metrics above keep it (`normalise`); all else compares answers by `comparable`.
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

SPARE_WORDS = 10  # how many words more than the golden answer a guarded match may have

_YES_NO = {"yes", "no"}

RIGHT_FROM = 0.7
"""The default value of a graded metric from which a solver's answer counts as right: an answer of three words with two
more (0.75), not a name of two words with another first name (0.5), nor a date of three with another day (0.67).

That holds for two or three words only. Of longer answers wrong ones pass by F1: University of South Carolina for
University of North Carolina (0.75), Treaty of Paris 1783 for 1763 (0.75), King George IV of England for George III
(0.8); so does "not Meri Tolu" for Meri Tolu (0.8). Where a wrong answer must not pass, an exact match is required."""

AnswerMetric = Callable[[str, Sequence[str]], float]


def normalise(text: str) -> str:
    """SQuAD's normal form: lower case, no ASCII punctuation, no English articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION_REMOVED)).split())


def comparable(text: str) -> str:
    """`normalise`, with one form for each character, in any script, and with the signs of numbers and names: `1 000` is
    `1000`, `-40` is not `40`, `3.5` is not `35` and `C++` is not `C`. A text of nothing else is as in `normalise`."""
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
    """1 if the normalised prediction equals a normalised golden answer (EM)."""
    predicted = normalise(prediction)
    return float(any(predicted == normalise(golden) for golden in golden_answers))


def substring_match(prediction: str, golden_answers: Sequence[str]) -> float:
    """1 if a normalised golden answer occurs anywhere in the normalised prediction (subEM).

    A golden answer that normalises to nothing occurs in everything: clean such data with `usable_question`.
    """
    predicted = normalise(prediction)
    return float(any(normalise(golden) in predicted for golden in golden_answers))


def guarded_substring_match(prediction: str, golden_answers: Sequence[str]) -> float:
    """1 if a golden answer occurs as whole words in a prediction at most `SPARE_WORDS` words longer than it, both
    `comparable`.

    Words are what spaces separate, so in scripts written without spaces this asks for an exact match. An answer that
    says both yes and no matches neither.
    """
    predicted = comparable(prediction).split()
    if set(predicted) >= _YES_NO:
        golden_answers = [golden for golden in golden_answers if comparable(golden) not in _YES_NO]
    return float(any(_contains_words(predicted, comparable(golden).split()) for golden in golden_answers))


def f1(prediction: str, golden_answers: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over the multisets of normalised words."""
    return f1_of_kept(prediction, prediction, golden_answers)


def f1_of_kept(kept: str, prediction: str, golden_answers: Sequence[str]) -> float:
    """The same where only the words that are kept of a prediction match, but all of them count as written."""
    words, written = normalise(kept).split(), len(normalise(prediction).split())
    return max((_overlap_f1(words, normalise(golden).split(), written) for golden in golden_answers), default=0.0)


def set_f1(prediction: str, golden_answers: Sequence[str]) -> float:
    """F1 over *sets* of words, articles kept and punctuation read as a space: DeepResearcher's (arXiv 2504.03160)."""
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
"""The rewards by which a question that is marked as unanswerable can be trained on."""


def is_right_refusal(trajectory: Trajectory) -> bool:
    """Return whether an answer refuses (`is_refusal`) a question that is marked as unanswerable. That is the only right
    answer there, as in SQuAD 2.0 (arXiv 1806.03822); a rollout without an answer refuses nothing."""
    return not trajectory.question.is_answerable and is_refusal(trajectory.answer)


def answer_value(metric: str, trajectory: Trajectory) -> float:
    """Return the trajectory's answer, without its citations, by a metric of `METRICS`; of an unanswerable question 1
    for a refusal and 0 for anything else. 0 without an answer."""
    answer, question = trajectory.answer, trajectory.question
    if answer is None or not question.is_answerable:
        return float(is_right_refusal(trajectory))
    return METRICS[metric](find_citations(answer)[0], question.golden_answers)


def usable_question(question: Question) -> Question:
    """Return the question without golden answers that normalise to nothing. Raises DataError if no other one is left.

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
            f"Question {question.id!r} ({question.text!r}) has the golden answer {question.golden_answers[0]!r}, of "
            "which nothing is left once punctuation and articles are ignored, so that any answer could match. Correct "
            "or remove it."
        )
    return question if len(usable) == len(question.golden_answers) else replace(question, golden_answers=usable)


def evaluable_question(question: Question) -> Question:
    """The same where a question that is marked as unanswerable can be scored, and needs no golden answers: in an
    evaluation, and in training by one of `SCORES_REFUSALS`."""
    return usable_question(question) if question.is_answerable else question


def _contains_words(words: list[str], wanted: list[str]) -> bool:
    if not wanted or len(words) > len(wanted) + SPARE_WORDS:
        return False
    return any(words[start : start + len(wanted)] == wanted for start in range(len(words) - len(wanted) + 1))


def _overlap_f1(predicted: Sequence[str], golden: Sequence[str], written: int | None = None) -> float:
    """2 common / (n + m), rounded once: equal quotients are equal rewards, whose advantages are exactly 0. By way of
    precision and recall the last bit would depend on the lengths."""
    common = sum((Counter(predicted) & Counter(golden)).values())
    return 2 * common / ((len(predicted) if written is None else written) + len(golden)) if common else 0.0
