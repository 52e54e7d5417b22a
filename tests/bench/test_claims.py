"""What bench/claims.py puts in the place of an engine, a reward and a verifier, and what it concludes."""

import asyncio

import pytest

from evoseek.assembly.inputs import read_questions
from evoseek.questions.outcomes import Rejection
from evoseek.rollout.prompts import load_prompts
from evoseek.types import Question
from evoseek.world.world import make_world


@pytest.fixture(scope="module")
def claims(script):
    return script("claims")


def test_an_engine_that_finds_nothing_shows_what_an_empty_result_shows(claims):
    (passages,) = asyncio.run(claims.NothingFound().search(["of whom"], 3))
    template = load_prompts("tiny")["observation"]
    assert str(template.text(passages=passages)) == str(template.text(passages=[]))


def test_random_passages_are_others_for_every_query_and_the_same_for_a_rollout(claims):
    engine = claims.RandomPassages(list(range(100)), 0)

    def drawn(rollout):
        return asyncio.run(engine.for_question(Question("q", "who?", ("x",)), rollout).search(["a", "a"], 3))

    first, second = drawn("step-1/0")
    assert first != second
    assert drawn("step-1/0") == [first, second] != drawn("step-1/1")


def test_the_gate_rejects_what_the_oracle_finds_wrong_but_for_what_leaks(claims, tmp_path):
    make_world(tmp_path, entities=300)
    right = read_questions(str(tmp_path / "questions.jsonl"), setting="questions.path")[0]
    wrong = Question("wrong", right.text, ("nobody",))

    def rejected(question, leak, key="key"):
        return asyncio.run(claims.Gate(tmp_path / "world.json", leak, 0)(question, (), (), key)).rejected

    assert rejected(right, 0.0) is None
    assert rejected(wrong, 0.0) is Rejection.UNVERIFIED
    assert rejected(wrong, 1.0) is None
    assert {rejected(wrong, 0.5, str(key)) for key in range(20)} == {None, Rejection.UNVERIFIED}


@pytest.mark.parametrize(
    ("values", "sign", "word"),
    [
        ((0.1, 0.11, 0.12), 1, "holds"),
        ((0.1, 0.11, 0.12), -1, "does not hold"),
        ((-0.1, 0.11, 0.12), 1, "undecided"),
        ((0.0, 0.0, 0.0), 1, "does not hold"),
        ((0.4,), 1, "undecided, one seed"),
    ],
)
def test_a_claim_holds_if_the_whole_interval_says_so(claims, values, sign, word):
    assert claims.verdict(values, sign).partition(": ")[2] == word
