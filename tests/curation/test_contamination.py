"""Overlap with evaluation sets, and questions whose answer a model knows."""

import asyncio

import pytest
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.curation.contamination import ClosedBook, ContaminationCheck, Overlap
from evoseek.errors import ConfigError, SamplerError, ToolError
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import ReaderEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.types import Question

LONG = "in which city lies harbour where ship of captain who first sailed around southern cape was built"  # 17 words
QUESTION = Question("q", "who is mayor of Kalo ?", ("Meri",))


def overlap(*texts, **options):
    return Overlap([Question(f"e{n}", text, ("x",)) for n, text in enumerate(texts)], **options)


def test_thirteen_words_in_a_row_overlap_and_twelve_do_not():
    words, found = LONG.split(), overlap(LONG)
    shared = found(f"tell me: {' '.join(words[2:15])}, please, now, in a few words, as you like it best")
    assert shared.details == {"words": " ".join(words[2:15]), "question": "e0"}
    assert (shared.keep, shared.reason) == (False, "shared words")
    assert found(f"tell me: {' '.join(words[2:14])}, please, now, in a few words, as you like it best") is None


def test_a_shorter_question_counts_whole_also_within_a_longer_text():
    found = overlap("Who wrote Dune?", LONG)
    assert found("Say in a word: who wrote the Dune?").details["question"] == "e0"
    assert found("Who wrote Dune's prologue, and when?") is None
    assert overlap("Who wrote Dune's prologue?")("Who wrote?") is None


def test_words_are_compared_in_normal_form_and_their_number_can_be_chosen():
    assert overlap("who is the mayor of Kalo, please?", words=3)("The MAYOR of: Kalo!").details["words"] == (
        "mayor of kalo"
    )
    assert overlap("who is mayor of Kalo please", words=4)("mayor of Kalo!") is None
    assert overlap("?!", "The")("the ?!") is None
    with pytest.raises(ConfigError, match="at least 1"):
        overlap(words=0)
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        overlap(likeness=0.0)


def test_a_text_that_is_like_a_question_overlaps_without_a_long_run_of_its_words():
    """Two of 30 words are others: no run is longer than ten, and 22 of 34 shingles are shared (0.65)."""
    words = [f"w{n}" for n in range(30)]
    changed = " ".join("other" if n in (9, 19) else word for n, word in enumerate(words))
    assert overlap(" ".join(words), likeness=0.5)(changed).reason == "likeness"
    assert overlap(" ".join(words), likeness=0.9)(changed) is None
    assert overlap(" ".join(words), likeness=1.0)(changed) is None


def ask(says, *, samples=4, question=QUESTION, max_total_tokens=100):
    """The verdict, and the scripted sampler."""
    tokenizer = tiny_tokenizer()
    sampler = ScriptedSampler(says, tokenizer)
    env = ReaderEnv((), load_prompts("tiny"))
    limits = Limits(max_turns=1, max_tokens_per_turn=20, max_total_tokens=max_total_tokens)
    roller = Roller(env, TagRenderer(tokenizer), sampler, limits, temperature=1.0, seed=0)
    check = ClosedBook(roller, AnswerReward("exact_match"), samples)
    return asyncio.run(check(question)), sampler


def script(*replies):
    def says(request):
        reply = replies[int(request.trajectory_id.rpartition("/")[2])]
        if reply is None:
            raise SamplerError("down")
        return reply

    return says


RIGHT, WRONG, SILENT = "<answer> Meri </answer>", "<answer> Tolu </answer>", "Meri"


def test_one_right_answer_of_several_is_enough_to_know_it():
    verdict, sampler = ask(script(WRONG, SILENT, RIGHT, WRONG))
    assert (verdict.keep, verdict.reason) == (False, "known")
    assert verdict.details == {"right": 1, "answered": 3, "samples": 4}
    assert {request.temperature for request in sampler.requests} == {1.0}
    assert len({request.trajectory_id for request in sampler.requests}) == 4


def test_no_right_answer_keeps_the_question():
    verdict, _ = ask(script(WRONG, SILENT, WRONG, WRONG))
    assert (verdict.keep, verdict.details["right"]) == (True, 0)


def test_refusing_an_unanswerable_question_shows_no_knowledge():
    marked = Question("q", "who is mayor of Kalo ?", (), {"answerable": False})
    verdict, _ = ask(script(*["<answer> unknown </answer>"] * 4), question=marked)
    assert (verdict.keep, verdict.details) == (True, {"right": 0, "answered": 4, "samples": 4})


def test_failures_leave_it_undecided_unless_another_sample_is_right():
    verdict, _ = ask(script(WRONG, None, WRONG, WRONG))
    assert (verdict.keep, verdict.reason) == (None, "down")
    assert verdict.details == {"right": 0, "answered": 3, "samples": 3}
    assert ask(script(WRONG, None, WRONG, RIGHT))[0].keep is False


def test_a_question_without_room_for_an_answer_is_not_asked():
    with pytest.raises(ToolError, match="no room"):
        ask(script(RIGHT), question=Question("q", "who " * 99, ("Meri",)))


def test_who_overlaps_is_not_asked():
    asked = []

    async def closed_book(question):
        asked.append(question.id)

    check = ContaminationCheck(overlap("who is mayor of Kalo"), closed_book)
    assert asyncio.run(check(QUESTION)).reason == "shared words"
    assert asked == []
    asyncio.run(check(Question("other", "who is in Tolu", ("x",))))
    assert asked == ["other"]
    assert asyncio.run(ContaminationCheck(overlap("who"))(Question("o", "and where", ("x",)))).keep is True
