"""Metrics of a batch of self-play: the proposals, their outcomes, and the solver's performance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from statistics import fmean

from evoseek.questions.outcomes import Rejection
from evoseek.rollout.environments import task_of
from evoseek.selfplay.tasks import proposers_group
from evoseek.text.normalization import RIGHT_FROM, comparable, exact_match
from evoseek.training.rollout_metrics import prefixed, rollout_metrics
from evoseek.types import Episode, Question, Scored, TrajectoryGroup
from evoseek.world.world import Oracle

# By the pass rate times 5, rounded up: (0, 0.2] is "0.0-0.2", and so on; 0 and 1 are separate.
_PASS_RATES = ("0", "0.0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1.0", "1")
_HOPS = ("0", "1", "2", "3", "4", "5+")


def selfplay_metrics(
    episodes: Sequence[Episode], *, oracle: Oracle | None = None, metric: str = "exact_match"
) -> dict[str, float]:
    """Return metrics of the episodes of one step. Invalid ones count in shares, never in rewards; "valid" questions are
    those that were not rejected. An answer is right if the part `metric` of its reward is at least `RIGHT_FROM`.

    proposer/*, solver/*              as in `rollout_metrics`; all proposals count as one group
    selfplay/proposals                episodes
    selfplay/valid_rate               share of proposals that became a question to be solved
    selfplay/rejected/<reason>        share of proposals rejected so; what is missing to 1 is valid or failed
    selfplay/requested_hops/mean      of the valid questions (searches, where these are asked for)
    selfplay/searches/mean            of the proposer, for the valid questions
    selfplay/<these two>/entropy      of their distribution, in nats
    selfplay/pass_rate/mean           of the solver, over the valid questions with a scored attempt
    selfplay/pass_rate/<from>-<to>    share of these questions; the upper end belongs to it. /0 and /1: none, all right
    selfplay/trainable                share of these questions with a signal for the solver: answered right by some of
                                      its scored attempts, but not by all
    selfplay/duplicate_rate           share of valid questions whose normalised text came before in the batch
    selfplay/question_words           words of a valid question
    selfplay/topics/entropy           of the passages on which the valid questions rest (`evidence`), as a share of what
                                      it would be if no passage were used twice: 0 if all rest on a single one

    and where an oracle judges the questions:

    selfplay/true_valid_rate          share of proposals that became a question with exactly one answer, the given one
    selfplay/true_hops/mean, /entropy of the valid questions that can be answered
    selfplay/true_hops/<n>            share of these, for n of 0 to 4 and 5+
    selfplay/hops_kept                share of valid questions that can be answered by the requested hops
    selfplay/agreed_wrong             share of valid questions with a scored attempt on whose answer the roles agree,
                                      more than half of the attempts, although it is wrong: co-cheating

    A number that has no value is left out.
    """
    if not episodes:
        return {}
    asked = [(episode, episode.question) for episode in episodes if episode.question is not None]
    solvers = [episode.solvers for episode, _ in asked if episode.solvers is not None]
    rejected = Counter(episode.rejected for episode in episodes)
    return {
        **prefixed("proposer", rollout_metrics([proposers_group("proposals", episodes)])),
        **(prefixed("solver", rollout_metrics(solvers)) if solvers else {}),
        "selfplay/proposals": float(len(episodes)),
        "selfplay/valid_rate": len(asked) / len(episodes),
        **{f"selfplay/rejected/{reason}": rejected[reason] / len(episodes) for reason in Rejection},
        **_spread("selfplay/requested_hops", [number for episode, _ in asked if (number := _requested(episode))]),
        **_spread("selfplay/searches", [len(episode.proposer.tool_results) for episode, _ in asked]),
        **_pass_rates(_tallies(solvers, metric)),
        **_variety([question for _, question in asked]),
        **(_truths(asked, oracle, len(episodes)) if oracle else {}),
        **(_agreed(asked, oracle, metric) if oracle else {}),
    }


def _requested(episode: Episode) -> int:
    return task_of(episode.proposer.question).requested


def _spread(name: str, numbers: Sequence[int]) -> dict[str, float]:
    return {f"{name}/mean": fmean(numbers), f"{name}/entropy": _entropy(numbers)} if numbers else {}


def _tallies(groups: Sequence[TrajectoryGroup], metric: str) -> list[tuple[int, int]]:
    """Return, for each question with scored attempts, the number of right ones and of all."""
    tallies: list[tuple[int, int]] = []
    for group in groups:
        right = [outcome.parts[metric] >= RIGHT_FROM for outcome in group.outcomes if isinstance(outcome, Scored)]
        if right:
            tallies.append((sum(right), len(right)))
    return tallies


def _pass_rates(tallies: Sequence[tuple[int, int]]) -> dict[str, float]:
    if not tallies:
        return {}
    bins = Counter("1" if right == tried else _PASS_RATES[-(-5 * right // tried)] for right, tried in tallies)
    return {
        "selfplay/pass_rate/mean": fmean(right / tried for right, tried in tallies),
        "selfplay/trainable": fmean(0 < right < tried for right, tried in tallies),
        **{f"selfplay/pass_rate/{name}": bins[name] / len(tallies) for name in _PASS_RATES},
    }


def _variety(questions: Sequence[Question]) -> dict[str, float]:
    if not questions:
        return {}
    metrics = {
        "selfplay/duplicate_rate": 1.0 - len({comparable(question.text) for question in questions}) / len(questions),
        "selfplay/question_words": fmean(len(question.text.split()) for question in questions),
    }
    passages = [passage for question in questions for passage in _evidence(question)]
    if len(passages) > 1:
        metrics["selfplay/topics/entropy"] = _entropy(passages) / math.log(len(passages))
    return metrics


def _evidence(question: Question) -> list[str]:
    ids = question.metadata.get("evidence")
    return [str(passage_id) for passage_id in ids] if isinstance(ids, list | tuple) else []


def _truths(asked: Sequence[tuple[Episode, Question]], oracle: Oracle, proposals: int) -> dict[str, float]:
    judged = [(episode, question, oracle(question.text)) for episode, question in asked]
    answerable = [(episode, question, truth) for episode, question, truth in judged if truth is not None]
    right = sum(exact_match(truth.answer, question.golden_answers) == 1.0 for _, question, truth in answerable)
    kept = sum(truth.hops == _requested(episode) for episode, _, truth in answerable)
    metrics = {"selfplay/true_valid_rate": right / proposals}
    if any(_requested(episode) for episode, _ in asked):
        metrics["selfplay/hops_kept"] = kept / len(judged)
    if answerable:
        hops = [truth.hops for _, _, truth in answerable]
        shares = Counter(_HOPS[min(number, len(_HOPS) - 1)] for number in hops)
        metrics |= _spread("selfplay/true_hops", hops)
        metrics |= {f"selfplay/true_hops/{name}": shares[name] / len(hops) for name in _HOPS}
    return metrics


def _agreed(asked: Sequence[tuple[Episode, Question]], oracle: Oracle, metric: str) -> dict[str, float]:
    agreed: list[bool] = []
    for episode, question in asked:
        for right, tried in _tallies([episode.solvers] if episode.solvers else [], metric):
            truth = oracle(question.text)
            is_wrong = truth is None or exact_match(truth.answer, question.golden_answers) < 1.0
            agreed.append(is_wrong and 2 * right > tried)
    return {"selfplay/agreed_wrong": fmean(agreed)} if agreed else {}


def _entropy(values: Iterable[Hashable]) -> float:
    """Return the entropy of the values' distribution, in nats."""
    counts = Counter(values)
    total = counts.total()
    return sum(count / total * math.log(total / count) for count in counts.values())
