import asyncio
import math
from dataclasses import replace

import pytest
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.errors import DataError, SamplerError
from evoseek.eval.draw import with_metric
from evoseek.eval.held_out import held_out_scores
from evoseek.eval.statistics import wilson_interval
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward, WebFormatReward
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.types import Question, Scored

TOKENIZER = tiny_tokenizer()
QUESTIONS = [Question(f"q{n}", "what is kalo?", ("meri",), {"hops": 1 + n % 2}) for n in range(4)]


def run(script, questions=QUESTIONS, metric="exact_match", token_s=0.0, **limits):
    sampler = ScriptedSampler(script, TOKENIZER, token_s=token_s)
    env, renderer = SolverEnv([], load_prompts("tiny")), TagRenderer(TOKENIZER)
    roller = Roller(env, renderer, sampler, Limits(**limits), temperature=0.5, seed=3)
    evaluation = asyncio.run(held_out_scores(questions, roller=roller, metric=metric, reward=AnswerReward(metric)))
    return evaluation, sampler


def answers(*texts):
    return {f"evaluation/q{n}/0": [f"<answer> {text} </answer>"] for n, text in enumerate(texts) if text}


def test_every_question_is_asked_exactly_once():
    evaluation, sampler = run(answers("meri", "kalo", "meri", "kalo"))
    assert [request.trajectory_id for request in sampler.requests] == [f"evaluation/q{n}/0" for n in range(4)]
    assert {(request.temperature, request.seed) for request in sampler.requests} == {(0.5, 3)}
    assert [one.sample.question for one in evaluation.drawn] == ["q0", "q1", "q2", "q3"]
    assert (evaluation.score.mean, evaluation.score.n, evaluation.score.n_invalid) == (0.5, 4, 0)


def test_failures_are_counted_and_wrong_and_none_is_dropped():
    """q1 has no script: its sampler fails. Of the other three, two are right: 2 of the declared 4."""
    evaluation, _ = run(answers("meri", None, "meri", "kalo"))
    score = evaluation.score
    assert (score.n, score.n_invalid) == (4, 1)
    assert score.mean == 0.5
    assert evaluation.rewards() == {"q0": 1.0, "q1": 0.0, "q2": 1.0, "q3": 0.0}
    assert score.interval == wilson_interval(2, 4)
    assert evaluation.metrics()["eval/n_invalid"] == 1.0


def test_in_training_too_an_unanswerable_question_is_right_if_it_is_refused():
    marked = [Question(f"q{n}", "what is vesu?", (), {"answerable": False}) for n in range(2)]
    evaluation, _ = run(answers("unknown", "meri"), marked)
    assert evaluation.rewards() == {"q0": 1.0, "q1": 0.0}
    reward = with_metric(WebFormatReward(), "format_f1")  # whose lowest value is that of a broken format
    graded = [asyncio.run(reward(one.trajectory)) for one in evaluation.drawn]
    assert graded == [Scored(1.0, {"format_f1": 1.0}), Scored(-1.0, {"format_f1": -1.0})]


def test_a_policy_that_does_not_finish_refuses_nothing():
    """Cut off at its limit of tokens, malformed, out of turns: none of these is right, and an empty answer is."""
    marked = [Question(f"q{n}", "what is vesu?", (), {"answerable": False}) for n in range(3)]
    turns = ["the " * 50, "meri", "<answer> </answer>"]
    evaluation, _ = run({f"evaluation/q{n}/0": [turn] for n, turn in enumerate(turns)}, marked, max_tokens_per_turn=20)
    assert [one.sample.stop_reason for one in evaluation.drawn] == ["max_tokens", "malformed", "answered"]
    assert evaluation.rewards() == {"q0": 0.0, "q1": 0.0, "q2": 1.0}


def test_a_policy_that_is_slow_where_it_is_wrong_is_no_better_than_one_that_is_fast():
    """Two right answers in time; two wrong ones that would take longer than the deadline. Neither is asked again."""
    slow = "kalo " * 50
    script = answers("meri", slow, "meri", slow)
    fast, _ = run(script, token_s=0.01)
    late, sampler = run(script, token_s=0.01, deadline_s=0.25)
    assert (fast.score.mean, fast.score.n_invalid) == (0.5, 0)
    assert (late.score.mean, late.score.n, late.score.n_invalid) == (0.5, 4, 0)
    assert [one.sample.stop_reason for one in late.drawn] == ["answered", "max_time"] * 2
    assert len(sampler.requests) == 4
    assert len(late.drawn[1].trajectory.segments[1].token_ids) == 25


def test_a_failure_counts_as_the_lowest_score_that_the_metric_can_give():
    """format_f1 gives -1 for a broken format: two failures among two of these must not raise the mean, nor win."""
    evaluation, _ = run(answers("meri", "meri"))

    def broken(drawn):
        return drawn._replace(sample=replace(drawn.sample, scores={"format_f1": -1.0}))

    mixed = replace(evaluation, metric="format_f1", drawn=(*map(broken, evaluation.drawn[:2]), *evaluation.drawn[2:]))
    assert (mixed.score.mean, mixed.score.n_invalid) == (-1.0, 2)
    assert mixed.rewards() == dict.fromkeys(["q0", "q1", "q2", "q3"], -1.0)
    assert {hops: score.mean for hops, score in mixed.by_hops().items()} == {1: -1.0, 2: -1.0}


def test_scores_by_hops():
    evaluation, _ = run(answers("meri", "kalo", "meri", "meri"))
    assert {hops: (score.mean, score.n) for hops, score in evaluation.by_hops().items()} == {1: (1.0, 2), 2: (0.5, 2)}
    assert evaluation.metrics()["eval/reward/hops_2"] == 0.5


def test_nothing_valid_gives_no_number():
    def fail(request):
        raise SamplerError("down")

    evaluation, _ = run(fail)
    assert math.isnan(evaluation.score.mean)
    assert evaluation.score.n_invalid == 4


def test_shared_ids_are_refused():
    with pytest.raises(DataError, match="share an id"):
        run(answers("meri"), questions=[QUESTIONS[0], QUESTIONS[0]])
