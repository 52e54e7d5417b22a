"""Verification with readers that say what a table says: which switch rejects what, and what is no verdict at all."""

import asyncio
from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.errors import SamplerError, ToolError
from evoseek.questions.outcomes import Rejection
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import ReaderEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.selfplay.verify import Verification, Verifier
from evoseek.types import Invalid, Passage, Question, SampleRequest, Scored, StopReason, Trajectory

TOKENIZER = tiny_tokenizer()
QUESTION = Question("t0", "who is the mayor of kalo ?", ("meri",))
RIGHT, WRONG, OTHER, SILENT, FAILS = "meri", "tolu", "vesu", None, "fails"


def passage(name: str) -> Passage:
    return Passage(f"{name}#0", name, name, f"{name} 's mayor is meri .")


OWN = (passage("kalo"), passage("nida"))
OTHERS = tuple(passage(name) for name in ("tolu", "vesu", "zumi", "lina", "koro", "mapi"))


class Readers:
    """Readers who answer by the end of their id; None is no answer, FAILS a failing sampler. What they saw is kept."""

    def __init__(self, tokens: int = 4096, **answers: str | None) -> None:
        self.limits = Limits(max_turns=1, max_tokens_per_turn=20, max_total_tokens=tokens)
        self.answers = {name.replace("_", "-"): answer for name, answer in answers.items()}
        self.shown: list[tuple[Passage, ...]] = []
        self.sampler = ScriptedSampler(self.say, TOKENIZER)

    def say(self, request: SampleRequest) -> str:
        answer = self.answers[request.trajectory_id.rpartition("/")[2]]
        if answer is FAILS:
            raise SamplerError("out of memory")
        return "<think> so </think>" if answer is None else f"<answer> {answer} </answer>"

    def __call__(self, passages: Sequence[Passage]) -> Roller:
        self.shown.append(tuple(passages))
        env = ReaderEnv(passages, load_prompts("tiny"))
        return Roller(env, TagRenderer(TOKENIZER), self.sampler, self.limits, temperature=0.0, seed=0)


def verdict_of(
    readers: Readers, *, others: Sequence[Passage] = OTHERS, key: str = "k", **switches: object
) -> Verification:
    settings = {"readings": 0, "seed": 0, **switches}
    verifier = Verifier(readers, settings.pop("correct", AnswerReward()), **settings)
    return asyncio.run(verifier(QUESTION, OWN, [[one] for one in others], key))


@pytest.mark.parametrize(("answer", "rejected"), [(RIGHT, Rejection.CLOSED_BOOK), (WRONG, None), (SILENT, None)])
def test_what_is_answered_without_a_passage_is_rejected(answer: str | None, rejected: Rejection | None) -> None:
    readers = Readers(closed_book=answer)
    verdict = verdict_of(readers, closed_book=True)
    assert (verdict.rejected, verdict.failure, readers.shown) == (rejected, None, [()])
    assert [reading.id for reading, _ in verdict.readings] == ["k/closed-book"]


@pytest.mark.parametrize(
    ("answer", "rejected"),
    [
        (RIGHT, None),
        ("the Meri .", None),
        (WRONG, Rejection.UNVERIFIED),
        ("", Rejection.UNVERIFIED),
        (SILENT, Rejection.UNVERIFIED),
    ],
)
def test_what_is_not_answered_from_the_passages_is_rejected_and_no_answer_verifies_nothing(
    answer: str | None, rejected: Rejection | None
) -> None:
    verdict = verdict_of(Readers(reading_0=answer), readings=1)
    assert (verdict.rejected, verdict.failure) == (rejected, None)
    ((reading, outcome),) = verdict.readings
    assert reading.id == "k/reading-0"
    assert outcome.reward == float(rejected is None)


def test_trap_12_without_passages_a_graded_reading_is_not_right_below_the_threshold() -> None:
    """Of two words one is right: F1 is 2/3."""
    readers = Readers(closed_book="meri tolu")
    assert verdict_of(readers, closed_book=True, correct=AnswerReward("f1")).rejected is None


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [("the Meri .", True), ("not meri", False), ("meri tolu vesu", False), ("", False), (SILENT, False)],
)
def test_what_is_read_with_graded_answers_must_match_exactly_to_verify_a_question(
    answer: str | None, is_right: bool
) -> None:
    """F1 is 1, 2/3, 1/2 and 0."""
    near = {"exact": True, "correct": AnswerReward("f1")}
    verdict = verdict_of(Readers(reading_0=answer), readings=1, **near)
    assert verdict.rejected is (None if is_right else Rejection.UNVERIFIED)
    verdict = verdict_of(Readers(reading_0="meri", reading_1=answer), readings=2, **near)
    assert verdict.rejected is (Rejection.AMBIGUOUS if answer and not is_right else None)


def test_trap_12_a_graded_reading_without_any_passage_need_not_be_exact_either() -> None:
    async def graded(trajectory: Trajectory) -> Scored:
        return Scored(6 / 7)

    verdict = verdict_of(Readers(closed_book=RIGHT), closed_book=True, correct=graded)
    assert verdict.rejected is Rejection.CLOSED_BOOK


@pytest.mark.parametrize(
    ("answers", "is_ambiguous"),
    [
        ((RIGHT, RIGHT, RIGHT), False),
        ((RIGHT, RIGHT, WRONG), False),
        ((RIGHT, WRONG, OTHER), True),  # each as often as the right one
        ((RIGHT, WRONG, SILENT), True),
        ((RIGHT, WRONG, RIGHT, "the Tolu"), True),  # one answer, in normal form
        ((RIGHT, SILENT, SILENT), False),  # silence is no other answer
        ((RIGHT, "", "the"), False),
        ((RIGHT, WRONG), True),
        ((RIGHT,), False),
    ],
)
def test_another_answer_as_frequent_as_the_right_one_makes_a_question_ambiguous(
    answers: tuple[str | None, ...], is_ambiguous: bool
) -> None:
    readers = Readers(**{f"reading_{number}": answer for number, answer in enumerate(answers)})
    verdict = verdict_of(readers, readings=len(answers))
    assert (verdict.rejected is Rejection.AMBIGUOUS) == is_ambiguous
    assert is_ambiguous or verdict.rejected is None
    assert len(readers.shown) == len(answers)


@pytest.mark.parametrize(
    ("closed", "answers", "rejected"),
    [
        (WRONG, (RIGHT, RIGHT, WRONG), None),
        (RIGHT, (RIGHT, RIGHT, RIGHT), Rejection.CLOSED_BOOK),
        (RIGHT, (WRONG, WRONG, WRONG), Rejection.CLOSED_BOOK),
        (WRONG, (WRONG, RIGHT, RIGHT), Rejection.UNVERIFIED),
        (WRONG, (SILENT, SILENT, SILENT), Rejection.UNVERIFIED),
        (WRONG, (RIGHT, WRONG, WRONG), Rejection.AMBIGUOUS),
    ],
)
def test_all_checks_together_share_their_readings_and_give_the_first_reason(
    closed: str, answers: tuple[str | None, ...], rejected: Rejection | None
) -> None:
    readers = Readers(closed_book=closed, **{f"reading_{number}": answer for number, answer in enumerate(answers)})
    verdict = verdict_of(readers, closed_book=True, readings=3)
    assert verdict.rejected is rejected
    assert [reading.id for reading, _ in verdict.readings] == [
        *("k/closed-book", "k/reading-0", "k/reading-1", "k/reading-2")
    ]


@pytest.mark.parametrize("switches", list(product([False, True], [0, 1, 3])))
def test_every_combination_of_switches_makes_just_the_readings_that_it_needs(switches: tuple[bool, int]) -> None:
    closed_book, count = switches
    readers = Readers(closed_book=WRONG, reading_0=RIGHT, reading_1=RIGHT, reading_2=RIGHT)
    verdict = verdict_of(readers, closed_book=closed_book, readings=count)
    assert verdict.rejected is None
    assert len(verdict.readings) == closed_book + count


@pytest.mark.parametrize("failing", ["closed_book", "reading_0", "reading_2"])
@pytest.mark.parametrize("others", [RIGHT, WRONG])
def test_a_reading_that_failed_rejects_nothing_and_verifies_nothing(failing: str, others: str) -> None:
    """Whatever the other readers say: even where they suffice to reject, a failure is no verdict."""
    answers = {"closed_book": others, "reading_0": others, "reading_1": others, "reading_2": others, failing: FAILS}
    verdict = verdict_of(Readers(**answers), closed_book=True, readings=3)
    assert verdict.rejected is None
    assert verdict.failure == Invalid(StopReason.SAMPLER_FAILED, "out of memory")
    assert len(verdict.readings) == 4
    failed = [reading.id for reading, outcome in verdict.readings if outcome == verdict.failure]
    assert failed == [f"k/{failing.replace('_', '-')}"]


def test_a_reward_that_cannot_be_had_is_a_failure_as_well() -> None:
    async def judge(trajectory: Trajectory) -> Scored:
        raise ToolError("no judge")

    verdict = verdict_of(Readers(reading_0=RIGHT), readings=1, correct=judge)
    assert (verdict.rejected, verdict.failure) == (None, Invalid(StopReason.REWARD_FAILED, "no judge"))


ids = st.lists(st.sampled_from([one.id for one in (*OWN, *OTHERS)]), max_size=12)
PASSAGES = {one.id: one for one in (*OWN, *OTHERS)}


@settings(deadline=None)
@given(ids, st.integers(0, 8), st.integers(1, 3), st.text("ab", max_size=3))
def test_noise_is_of_others_never_of_ones_own_and_follows_from_the_id(
    found: list[str], noise: int, readings: int, key: str
) -> None:
    others = [PASSAGES[name] for name in found]
    silent = {f"reading_{number}": SILENT for number in range(readings)}

    def shown(**more: object) -> list[tuple[Passage, ...]]:
        readers = Readers(**silent)
        verdict_of(readers, others=others, readings=readings, noise_passages=noise, **{"key": key, **more})
        return readers.shown

    unrelated = set(found) - {one.id for one in OWN}
    for passages in shown():
        names = [one.id for one in passages]
        assert len(names) == len(set(names)) == 2 + min(noise, len(unrelated))
        assert set(names) >= {one.id for one in OWN}
        assert set(names) <= unrelated | {one.id for one in OWN}
    assert shown() == shown()


@pytest.mark.parametrize(("noise", "count"), [(1, 2), (2, 4), (9, 5)])
def test_noise_may_be_all_that_so_many_others_found(noise: int, count: int) -> None:
    """Others found two passages, two with one of the question's own, one more, and nothing but its own."""
    one, two, three, four, five, _ = OTHERS
    others = [[one, two], [OWN[0], three, four], [five], [*OWN], []]
    readers = Readers(reading_0=RIGHT)
    verifier = Verifier(readers, AnswerReward(), 0, noise_passages=noise, noise="trajectories")
    for key in "abcdefgh":
        assert asyncio.run(verifier(QUESTION, OWN, others, key)).rejected is None
    for passages in readers.shown:
        shown = {passage.id for passage in passages} - {passage.id for passage in OWN}
        whole = [{passage.id for passage in found} - {passage.id for passage in OWN} for found in others]
        assert len(passages) == 2 + len(shown)
        assert sum(bool(found) and found <= shown for found in whole) == min(noise, 3)
        assert shown == set().union(*(found for found in whole if found <= shown))
    assert max(len(passages) for passages in readers.shown) == 2 + count


def test_readings_differ_in_order_and_noise_and_so_do_seeds_and_questions() -> None:
    def shown(**more: object) -> list[tuple[Passage, ...]]:
        readers = Readers(**{f"reading_{number}": RIGHT for number in range(8)})
        verdict_of(readers, readings=8, noise_passages=3, **more)
        return readers.shown

    one = shown()
    assert len(set(one)) == 8
    assert len({frozenset(passages) for passages in one}) > 1
    assert len({passages.index(OWN[0]) for passages in one}) > 1  # its place does not give the evidence away
    assert one != shown(seed=1)
    assert one != shown(key="l")


@pytest.mark.parametrize("shown", range(2, 9))
def test_what_there_is_no_room_for_is_left_out_noise_first(shown: int) -> None:
    """A question must not end a training because its proposer, or others, found long passages. All are of equal length
    here, and a turn takes 20 tokens."""
    env = ReaderEnv([*OWN, *OTHERS][:shown], load_prompts("tiny"))
    room = len(TagRenderer(TOKENIZER).render_prompt(env.messages(QUESTION))) + 20
    for tokens, count in ((room, shown), (room - 1, shown - 1)):
        readers = Readers(tokens, reading_0=RIGHT)
        assert verdict_of(readers, readings=1, noise_passages=6).rejected is None
        assert len(readers.shown[-1]) == count
        assert len({*readers.shown[-1]} & {*OWN}) == min(count, 2)
