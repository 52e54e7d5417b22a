"""The certainty of an answer, from the logprobs of its own tokens."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.agent.certainty import certainty_of
from evoseek.types import Action, Question, Segment, StopReason, Trajectory

QUESTION = Question("q", "who?", ("meri",))


def certainty(answer, *turns, temperature=0.0, actions=None):
    """Of turns of pieces with their logprobs: a token is a place in the list of all pieces."""
    pieces = [piece for turn in turns for piece, _ in turn]
    segments, first = [Segment("prompt", (0,))], 0
    for turn in turns:
        ids = tuple(range(first, first + len(turn)))
        segments += [Segment("action", ids, tuple(logprob for _, logprob in turn)), Segment("observation", (0,))]
        first += len(turn)
    made = actions or [*[Action("")] * (len(turns) - 1), Action("", answer=answer)]
    reason = StopReason.MAX_TURNS if answer is None else StopReason.ANSWERED
    rolled = Trajectory("t", QUESTION, "solver", tuple(segments), tuple(made), (), reason, answer)
    return certainty_of(rolled, lambda ids: "".join(pieces[id] for id in ids), temperature=temperature)


@pytest.mark.parametrize(
    ("answer", "turn", "places"),
    [
        ("Meri Tolu", [("<answer>", -9), (" Meri", -1), (" Tolu", -2), (" </answer>", -9)], (1, 2)),
        # a token that holds a part of the answer and a part of a tag counts
        ("Meri Tolu", [("<answer> M", -1), ("eri Tolu", -2), ("</answer>", -9)], (0, 1)),
        # neither what was thought nor the letters of a tag are the answer
        (
            "we",
            [("<think> we", -9), (" do </think>", -9), ("<answer> ", -9), ("we", -3), ("</ans", -9), ("wer>", -9)],
            (3,),
        ),
        # what follows a closed answer is ignored
        ("a b", [("<answer>a", -1), (" b</answer>", -2), (" a b", -9)], (0, 1)),
        # the last message is the answer
        (
            "Meri",
            [("<think>", -9), ("Meri?</think>", -9), ("\n\n", -9), ("Me", -1), ("ri", -4), ("<|im_end|>", -9)],
            (3, 4),
        ),
        ("1 < 2", [("1 <", -1), (" 2", -2), ("<eos>", -9)], (0, 1)),
        ("Meri (b. 1950)", [("<answer> Meri (b.", -1), (" 1950) ", -1.5), ("</answer>", -9)], (0, 1)),
        # a token without text of its own, such as a part of a character
        ("\u6771\u4eac", [("<answer>", -9), ("\u6771", -1), ("", -2), ("\u4eac", -3), ("</answer>", -9)], (1, 2, 3)),
    ],
)
def test_the_tokens_of_the_answer_count_and_no_others(answer, turn, places):
    expected = math.exp(sum(turn[place][1] for place in places) / len(places))
    assert certainty(answer, turn) == pytest.approx(expected)


def test_of_several_turns_the_one_that_answers_counts():
    search = [("<search> Meri </search>", -9)]
    answer = [("<answer>", -9), ("Meri", -0.5), ("</answer>", -9)]
    assert certainty("Meri", search, answer) == pytest.approx(math.exp(-0.5))
    first = [Action("", answer="Meri"), Action("", answer="Tor")]  # of a baseline, whose first part may answer
    assert certainty("Meri", answer, search, actions=first) == pytest.approx(math.exp(-0.5))


TURN = [("<answer>", -9), ("Meri", -0.5), ("</answer>", -9)]


@pytest.mark.parametrize(
    ("answer", "turns", "temperature", "expected"),
    [
        ("Meri", [TURN], 1.0, math.exp(-0.5)),
        ("Meri", [TURN], 0.7, None),  # whose logprobs are those of temperature 0.7
        (None, [TURN], 0.0, None),
        ("", [[("<answer></answer>", -9)]], 0.0, None),
        ("Meri", [], 0.0, None),  # a model that was called with messages
        ("Tor", [TURN], 0.0, None),
    ],
)
def test_without_an_answer_or_its_logprobs_at_temperature_1_there_is_no_certainty(answer, turns, temperature, expected):
    found = certainty(answer, *turns, temperature=temperature)
    assert found == (expected if expected is None else pytest.approx(expected))


@given(st.lists(st.sampled_from(["meri", "kalo", "answer", "."]), min_size=1, max_size=4), st.floats(-5, 0))
def test_the_mean_is_over_as_many_tokens_as_the_answer_has(words, logprob):
    tokenizer, answer = tiny_tokenizer(), " ".join(words)
    ids = tuple(tokenizer.encode(f"<think> {answer} </think> <answer> {answer} </answer>", add_special_tokens=False))
    own = tuple(tokenizer.encode(answer, add_special_tokens=False))
    place = max(n for n in range(len(ids)) if ids[n : n + len(own)] == own and n + len(own) < len(ids))
    logprobs = tuple(logprob if place <= n < place + len(own) else -7.0 for n in range(len(ids)))
    rolled = Trajectory(
        "t", QUESTION, "solver", (Segment("action", ids, logprobs),), (Action("", answer=answer),), (),
        StopReason.ANSWERED, answer,
    )  # fmt: skip
    assert certainty_of(rolled, tokenizer.decode, temperature=1.0) == pytest.approx(math.exp(logprob))
