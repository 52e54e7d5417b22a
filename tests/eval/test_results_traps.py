"""Mistakes of published evaluation code, from what a model wrote to its score.

Others have their tests beside what they hold: golden answers that normalise to nothing (reward/test_answer.py), tags in
a tool's text (policy/test_tags.py), a dropped last batch (test_results.py) and another n than declared (test_suite.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.doubles.scripted import ScriptedSampler
from transformers import PreTrainedTokenizerBase

from evoseek.eval.results import Results
from evoseek.eval.sample import Sample, draw
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.types import Question

RIGHT = "<answer> Meri </answer>"


@pytest.fixture
def scored(made: Callable[[str], PreTrainedTokenizerBase]) -> Callable[..., list[Sample]]:
    """`scored(text, ...)`: the samples of questions to which the model writes these texts, .01 seconds a token."""

    def of(*texts: str, **limits: float) -> list[Sample]:
        tokenizer = made("qwen")
        renderer, script = TagRenderer(tokenizer), {f"evaluation/q{n}/0": [text] for n, text in enumerate(texts)}
        roller = Roller(
            SolverEnv([], load_prompts("tiny"), renderer.format),
            renderer,
            ScriptedSampler(script, tokenizer, token_s=0.01),
            Limits(**limits),
        )
        return [
            asyncio.run(
                draw(
                    Question(f"q{n}", "who is the mayor of Kalo ?", ("Meri",)),
                    0,
                    answer=roller.one,
                    metric="exact_match",
                    reward=AnswerReward("exact_match"),
                )
            )[0]
            for n in range(len(texts))
        ]

    return of


def test_trap_of_two_answers_the_first_counts(scored: Callable[..., list[Sample]]) -> None:
    """Whoever writes a second one after a wrong one, or several to choose from, has answered with the first."""
    samples = scored(f"<answer> Tolu </answer> {RIGHT}", f"{RIGHT} <answer> Tolu </answer>")
    assert [(one.answer, one.scores["exact_match"]) for one in samples] == [("Tolu", 0.0), ("Meri", 1.0)]


@pytest.mark.parametrize("end", ["<|im_end|>", "<|im_end|>\n", "<|im_end|>\n<|endoftext|>", " \n\n"])
def test_trap_tokens_that_end_a_turn_are_no_part_of_the_answer(scored: Callable[..., list[Sample]], end: str) -> None:
    (sample,) = scored(RIGHT + end)
    assert (sample.answer, sample.scores["exact_match"], sample.scores["f1"]) == ("Meri", 1.0, 1.0)


def test_trap_a_policy_that_is_slow_where_it_is_wrong_is_not_scored_on_the_rest_alone(
    scored: Callable[..., list[Sample]],
) -> None:
    """Two of four run out of time: .5 of four, all of them scored, not 1.0 of two."""
    slow = "Tolu " * 200
    samples = scored(RIGHT, slow, RIGHT, slow, deadline_s=0.5)
    results = Results("exact_match", 4, 1, tuple(samples))
    assert (results.score("exact_match").mean, results.score("exact_match").n) == (0.5, 4)
    assert [sample.stop_reason for sample in samples] == ["answered", "max_time", "answered", "max_time"]
    assert results.is_final
