"""One sample: drawn, scored by every metric, written and read back."""

import asyncio
import json
import math
from dataclasses import asdict, replace
from functools import partial

import pytest
from pydantic import TypeAdapter
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.agent.answer import certainty_of
from evoseek.agent.support import by_words
from evoseek.errors import SamplerError, ToolError
from evoseek.eval.draw import (
    Sample,
    content_digest,
    draw,
    draw_missing,
    merged,
)
from evoseek.eval.results import Results, value_of
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.rollout.tools import SearchTool
from evoseek.storage.jsonl import made_by
from evoseek.types import Passage, Question

TOKENIZER = tiny_tokenizer()
QUESTION = Question("q", "what is kalo?", ("meri",), {"hops": 2, "source": "nq", "evidence": ["Kalo", "Vesu"]})

SAMPLE_OF = made_by(TypeAdapter(Sample))


class OnePassage:
    is_local = True

    async def search(self, queries, k):
        return [[Passage("d7#0", "d7", "kalo", "kalo is meri .")] for _ in queries]


UNANSWERABLE = Question("q", "what is kalo?", (), {"answerable": False})


def drawn(script, number=0, question=QUESTION, check=by_words, lowest=0.0):
    sampler = ScriptedSampler(script, TOKENIZER)
    prompts = load_prompts("tiny")
    env = SolverEnv([SearchTool(OnePassage(), 1, template=prompts["observation"])], prompts)
    answer = Roller(env, TagRenderer(TOKENIZER), sampler, Limits()).one
    reward = AnswerReward("f1")
    reward.lowest = lowest
    sample, _, _ = asyncio.run(draw(question, number, answer=answer, metric="f1", reward=reward, check=check))
    return sample, sampler


def test_a_sample_has_every_metric_and_what_it_took():
    """One search finds one of two documents; "meri kalo" against "meri" is F1 2/3 and contains it."""
    turns = ["<search> kalo </search>", "<answer> meri kalo </answer>"]
    sample, _ = drawn({"evaluation/q/3": turns}, 3)
    assert sample.key == ("q", 3)
    assert sample.scores == {
        "f1": pytest.approx(2 / 3),
        "exact_match": 0.0,
        "substring_match": 1.0,
        "guarded_substring_match": 1.0,
        "set_f1": pytest.approx(2 / 3),
    }
    assert (sample.queries, sample.documents, sample.recall, sample.searches) == (("kalo",), ("d7",), 0.5, 1)
    assert (sample.stop_reason, sample.answer, sample.hops, sample.source) == ("answered", "meri kalo", 2, "nq")
    assert sample.written == sum(len(TOKENIZER.encode(turn, add_special_tokens=False)) for turn in turns)
    assert SAMPLE_OF(json.loads(json.dumps(asdict(sample)))) == sample


def test_a_rollout_that_fails_is_repeated_with_the_same_random_numbers():
    asked = []

    def script(request):
        asked.append(request.trajectory_id)
        if len(asked) < 3:
            raise SamplerError("down")
        return "<answer> meri </answer>"

    sample, _ = drawn(script)
    assert asked == ["evaluation/q/0"] * 3
    assert (sample.invalid, sample.scores["exact_match"]) == (None, 1.0)


def test_what_keeps_failing_is_invalid_and_has_the_lowest_score():
    sample, sampler = drawn({}, lowest=-2.0)
    assert (sample.invalid, sample.scores, len(sampler.requests)) == ("sampler_failed", {"f1": -2.0}, 3)
    assert (value_of(sample, "f1"), value_of(sample, "exact_match")) == (-2.0, 0.0)
    assert Results("f1", 1, 1, (sample,)).score("f1").mean == -2.0
    assert "has no turn 0" in sample.detail


def test_without_an_answer_every_score_is_0_and_evidence_that_is_not_known_is_no_recall():
    sample, _ = drawn({"evaluation/q/0": ["meri"]}, question=Question("q", "what is kalo?", ("meri",)))
    assert set(sample.scores.values()) == {0.0}
    assert (sample.stop_reason, sample.recall, sample.hops) == ("malformed", None, None)


@pytest.mark.parametrize(
    ("turn", "value", "supported"),
    [("<answer> meri </answer>", 0.0, True), ("<answer> unknown </answer>", 1.0, False), ("hm", 0.0, False)],
)
def test_an_unanswerable_question_is_right_if_it_is_refused_and_wrong_if_it_is_answered(turn, value, supported):
    sample, _ = drawn({"evaluation/q/0": ["<search> kalo </search>", turn]}, question=UNANSWERABLE)
    assert set(sample.scores) == {"f1", "set_f1", "exact_match", "substring_match", "guarded_substring_match"}
    assert (set(sample.scores.values()), sample.supported, sample.answerable) == ({value}, supported, False)
    assert SAMPLE_OF(json.loads(json.dumps(asdict(sample)))) == sample


def test_the_certainty_of_a_sample_is_that_of_its_rollout_and_of_an_invalid_one_there_is_none():
    def drawn_with(script):
        sampler = ScriptedSampler(script, TOKENIZER, logprob=-0.5)
        answer = Roller(SolverEnv([], load_prompts("tiny")), TagRenderer(TOKENIZER), sampler, Limits()).one
        certainty = partial(certainty_of, decode=TOKENIZER.decode, temperature=1.0)
        made = draw(QUESTION, 0, answer=answer, metric="f1", reward=AnswerReward("f1"), certainty=certainty)
        return asyncio.run(made)[0]

    sure = drawn_with(lambda _: "<answer> meri kalo </answer>")
    assert sure.certainty == pytest.approx(math.exp(-0.5))
    assert SAMPLE_OF(json.loads(json.dumps(asdict(sure)))) == sure
    assert drawn_with({}).certainty is None


def test_a_check_of_support_that_fails_is_no_score():
    async def broken(trajectory):
        raise ToolError("The judge is down.")

    sample, _ = drawn(lambda _: "<answer> meri </answer>", check=broken)
    assert (sample.invalid, sample.detail, sample.supported) == ("reward_failed", "The judge is down.", False)


def test_of_the_same_sample_the_first_valid_one_counts():
    def sample(number, invalid=None, answer=""):
        return Sample("q", number, "", {}, "answered", answer=answer, invalid=invalid)

    rows = [sample(1, "x", "a"), sample(0, None, "b"), sample(1, "x", "c"), sample(1, None, "d"), sample(0, "x", "e")]
    assert [one.answer for one in merged(rows).values()] == ["b", "d"]
    assert [one.answer for one in merged([sample(0, "x", "a"), sample(0, "x", "b")]).values()] == ["b"]


def test_a_row_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="question: Field required"):
        SAMPLE_OF({"queries": [], "documents": []})
    with pytest.raises(ValueError, match="colour: Unexpected keyword argument"):
        SAMPLE_OF({"question": "q", "number": 0, "content": "", "scores": {}, "stop_reason": "x", "colour": 1})
    assert content_digest(QUESTION) != content_digest(Question("q", QUESTION.text, ("vesu",)))


def test_questions_that_hide_different_documents_differ():
    one, other = (Question("q", "who?", (), {"answerable": False, "hidden": hidden}) for hidden in (["a"], ["b"]))
    assert content_digest(one) != content_digest(other)


def test_every_missing_sample_is_drawn_once():
    questions, kept = [QUESTION, Question("r", "what is vesu?", ("tolu",))], []

    async def named(question, number):
        return question.id, number

    asyncio.run(draw_missing(questions, 2, {("q", 0)}, draw=named, keep=kept.append))
    assert sorted(kept) == [("q", 1), ("r", 0), ("r", 1)]


RIGHT = "<answer> Meri </answer>"


@pytest.fixture
def scored(made):
    """`scored(text, ...)`: the samples of questions to which the model writes these texts, .01 seconds a token."""

    def of(*texts, **limits):
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


def test_trap_of_two_answers_the_first_counts(scored):
    """Whoever writes a second one after a wrong one, or several to choose from, has answered with the first."""
    samples = scored(f"<answer> Tolu </answer> {RIGHT}", f"{RIGHT} <answer> Tolu </answer>")
    assert [(one.answer, one.scores["exact_match"]) for one in samples] == [("Tolu", 0.0), ("Meri", 1.0)]


@pytest.mark.parametrize("end", ["<|im_end|>", "<|im_end|>\n", "<|im_end|>\n<|endoftext|>", " \n\n"])
def test_trap_tokens_that_end_a_turn_are_no_part_of_the_answer(scored, end):
    (sample,) = scored(RIGHT + end)
    assert (sample.answer, sample.scores["exact_match"], sample.scores["f1"]) == ("Meri", 1.0, 1.0)


def test_trap_a_policy_that_is_slow_where_it_is_wrong_is_not_scored_on_the_rest_alone(scored):
    """Two of four run out of time: .5 of four, all of them scored, not 1.0 of two."""
    slow = "Tolu " * 200
    samples = scored(RIGHT, slow, RIGHT, slow, deadline_s=0.5)
    results = Results("exact_match", 4, 1, tuple(samples))
    assert (results.score("exact_match").mean, results.score("exact_match").n) == (0.5, 4)
    assert [sample.stop_reason for sample in samples] == ["answered", "max_time", "answered", "max_time"]
    assert results.is_final


def test_a_sample_of_sentences_says_what_is_cited_beside_them():
    """The passage is cited by the check where the model cites none."""
    asked = Question("q", "what is kalo?", ("kalo is meri .",), {"support": ["kalo is meri ."]})
    turns = ["<search> kalo </search>", "<answer> kalo is meri . so </answer>"]
    sample, _ = drawn({"evaluation/q/0": turns}, question=asked)
    assert (sample.is_long, sample.supported, sample.cited) == (True, True, 1.0)
    other = replace(asked, metadata={"support": ["kalo is a town ."]})
    sample, _ = drawn({"evaluation/q/0": turns}, question=other)
    assert (sample.supported, sample.cited) == (True, 0.0)
    sample, _ = drawn({"evaluation/q/0": turns}, question=replace(asked, text="who tunes the piano of lew?"))
    assert (sample.supported, sample.cited) == (False, 0.0)  # what is not shown cites nothing
    assert drawn({"evaluation/q/0": turns})[0].is_long is False
