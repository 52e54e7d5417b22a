"""Checking a simulator: the numbers by hand, with replies that follow a script."""

import asyncio
import math
from dataclasses import replace

import pytest
from tests.doubles.scripted import ScriptedChat

from evoseek.errors import DataError, ToolError
from evoseek.renderers.encoding import plain
from evoseek.rollout.prompts import load_prompts
from evoseek.systems.zerosearch.check import check_simulator, compliance_table, world_claims
from evoseek.systems.zerosearch.engine import SimulatedEngine, simulator_reply
from evoseek.systems.zerosearch.searches import SearchRecord
from evoseek.types import Passage, Question
from evoseek.world.world import World

WORLD = World.generate(5, 200, "evaluation")
ASKED = WORLD.questions(4, seed=0, hops=[2])
PROMPTS = load_prompts("tiny")
LAST, SOME, TRUE = "last link, golden answer", "earlier link, some object", "earlier link, true object"
GIVEN_AWAY = "earlier link, golden answer"


def record(question, query, *texts, page=1):
    texts = texts or ("one two three", "four")
    return SearchRecord(question, query, tuple(Passage(t, t, "", t) for t in texts), page)


def link(question, number):
    """Subject, relation, object of a link of the question's chain."""
    return question.metadata["chain"][number]


def query(question, number):
    subject, relation, _ = link(question, number)
    return f"{subject}'s {relation}"


def sentence(question, number, name=None):
    subject, relation, object_ = link(question, number)
    return f"{subject.lower()} ' s {relation} is {(name or object_).lower()} ."


RECORDS = [record(question, query(question, number)) for question in ASKED for number in (0, 1)]


def asked_by(key, records=RECORDS):
    """The kind of documents that a key asks for, the question, and which link of it."""
    _, kind, number = key.split("/")
    one = records[int(number) - 1]
    return kind, one.question, 0 if one.query == query(one.question, 0) else 1


def check(script, records=RECORDS, *, count=500, seed=0):
    chat = ScriptedChat(script)
    engine = SimulatedEngine(chat, PROMPTS, max_words=20, seed=seed)
    return asyncio.run(check_simulator(engine, records, world_claims(WORLD), count=count, documents=2)), chat


def obedient(messages, key):
    """Useful replies state what is asked for; noisy ones speak of it."""
    kind, question, number = asked_by(key)
    said = sentence(question, number) if kind == "useful" else f"{link(question, number)[0]} is unknown."
    return simulator_reply(["Something else.", said])


def test_a_simulator_is_told_the_earlier_queries_as_in_training():
    first, last = query(ASKED[0], 0), query(ASKED[0], 1)
    records = [replace(record(ASKED[0], last), earlier=(first,))]
    _, chat = check(lambda messages, key: simulator_reply(["a", "b"]), records)
    assert {f"earlier {first} query {last}" in plain(asked.messages[0].content) for asked in chat.asked} == {True}


def test_an_obedient_simulator():
    checked, chat = check(obedient)
    assert {kind: checked.readable[kind].mean for kind in checked.readable} == {"useful": 1.0, "noisy": 1.0}
    useful = {name: (score.mean, score.n) for name, score in checked.stating["useful"].items()}
    assert useful == {SOME: (1.0, 4), TRUE: (1.0, 4), GIVEN_AWAY: (0.0, 4), LAST: (1.0, 4)}
    assert {score.mean for score in checked.stating["noisy"].values()} == {0.0}
    assert len(chat.asked) == 16
    assert len({asked.key for asked in chat.asked}) == 16
    prompts = {asked.messages[0].content for asked in chat.asked if asked.key.startswith("check/noisy")}
    assert all("noisy" in prompt and "useful" not in prompt for prompt in prompts)


def test_an_invention_is_an_object_but_neither_the_true_one_nor_the_golden_answer():
    def inventive(messages, key):
        _, question, number = asked_by(key)
        return simulator_reply([sentence(question, number, "Nobody"), "x"])

    checked, _ = check(inventive)
    for kind in ("useful", "noisy"):
        stated = {name: score.mean for name, score in checked.stating[kind].items()}
        assert stated == {SOME: 1.0, TRUE: 0.0, GIVEN_AWAY: 0.0, LAST: 0.0}


def test_giving_the_golden_answer_away_at_an_earlier_link_is_seen():
    def generous(messages, key):
        _, question, number = asked_by(key)
        return simulator_reply([sentence(question, number, question.golden_answers[0]), "x"])

    stated = {name: score.mean for name, score in check(generous)[0].stating["useful"].items()}
    assert stated == {SOME: 1.0, TRUE: 0.0, GIVEN_AWAY: 1.0, LAST: 1.0}


def test_unreadable_replies_and_failures_count_as_invalid_and_are_named():
    def half(messages, key):
        kind, _, number = asked_by(key)
        if kind == "noisy":
            raise ToolError("the endpoint is down")
        return obedient(messages, key) if number == 1 else "Document 1: alone"

    checked, _ = check(half)
    assert checked.readable["useful"].mean == 0.5
    assert checked.readable["noisy"].mean == 0.0
    last, true = checked.stating["useful"][LAST], checked.stating["useful"][TRUE]
    assert (last.mean, last.n, last.n_invalid) == (1.0, 4, 0)
    assert (math.isnan(true.mean), true.n, true.n_invalid) == (True, 4, 4)
    assert all(math.isnan(score.mean) for score in checked.stating["noisy"].values())
    assert len(checked.problems) == 12
    assert checked.problems.count("the endpoint is down") == 8
    assert compliance_table(checked).row_count == 5


def test_of_each_questions_queries_every_one_is_asked_once_and_only_if_something_is_known_of_it():
    other = Question(ASKED[0].id, ASKED[1].text, ASKED[1].golden_answers, ASKED[1].metadata)  # ids of two files
    more = [record(ASKED[0], "hello"), record(ASKED[0], "other", page=2), RECORDS[0], record(other, query(other, 1))]
    checked, chat = check(lambda messages, key: "x", [*RECORDS, *more])
    assert checked.unasked == 1
    assert {int(asked.key.split("/")[2]) for asked in chat.asked} == {1, 2, 3, 4, 5, 6, 7, 8, 12}
    assert len({asked.key for asked in chat.asked}) == len(chat.asked) == 18
    with pytest.raises(DataError, match="has an answer that can be checked"):
        check(obedient, [record(ASKED[0], "hello")])


def test_a_sample_follows_from_the_seed():
    keys = [{asked.key for asked in check(obedient, count=3, seed=seed)[1].asked} for seed in (0, 0, 1)]
    assert len(keys[0]) == 6
    assert keys[0] == keys[1] != keys[2]
