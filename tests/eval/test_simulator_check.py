"""Checking a simulator: the numbers by hand, with replies that follow a script."""

import asyncio
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.corpus.world import World
from evoseek.env.prompts import load_prompts
from evoseek.env.simulator import SimulatorPrompts, simulator_reply
from evoseek.errors import DataError, ToolError
from evoseek.eval.simulator_check import GoldenTruth, WorldTruth, check_simulator, divergence
from evoseek.policy.scripted import ScriptedChat
from evoseek.report.simulator import obedience_table, style_table
from evoseek.systems.search_records import SearchRecord
from evoseek.types import Passage, Question

WORLD = World.generate(5, 200, "evaluation")
ASKED = WORLD.questions(4, seed=0, hops=[2])
PROMPTS = SimulatorPrompts(load_prompts("tiny"))
WORDS = st.lists(st.text(alphabet="abcd ", min_size=1), min_size=1, max_size=5).filter(
    lambda t: any("".join(t).split())
)


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


def check(script, records=RECORDS, truth=None, **more):
    chat = ScriptedChat(script)
    given = {"count": 500, "documents": 2, "max_words": 20, "seed": 0, **more}
    return asyncio.run(check_simulator(chat, PROMPTS, records, truth or WorldTruth(WORLD), **given)), chat


def obedient(messages, key):
    """Useful replies state what is asked for; noisy ones speak of it."""
    _, kind, identifier, asked = key.split("/")
    question = next(question for question in ASKED if question.id == identifier)
    number = 0 if asked == query(question, 0) else 1
    said = sentence(question, number) if kind == "useful" else f"{link(question, number)[0]} is unknown."
    return simulator_reply(["Something else.", said])


def test_an_obedient_simulator():
    checked, chat = check(obedient)
    assert {kind: checked.readable[kind].mean for kind in checked.readable} == {"useful": 1.0, "noisy": 1.0}
    assert {group: (score.mean, score.n) for group, score in checked.holding["useful"].items()} == {
        "earlier link": (1.0, 4),
        "last link": (1.0, 4),
        "all": (1.0, 8),
    }
    assert {score.mean for score in checked.holding["noisy"].values()} == {0.0}
    assert len(chat.asked) == 16
    assert len({asked.key for asked in chat.asked}) == 16
    prompts = {asked.messages[0].content for asked in chat.asked if asked.key.startswith("check/noisy")}
    assert all("noisy" in prompt and "useful" not in prompt for prompt in prompts)


def test_a_last_link_is_the_golden_answer_and_an_earlier_one_is_anything():
    def inventive(messages, key):
        question = next(question for question in ASKED if question.id == key.split("/")[2])
        number = 0 if key.endswith(query(question, 0)) else 1
        return simulator_reply([sentence(question, number, "Nobody"), "x"])

    checked, _ = check(inventive)
    means = {group: score.mean for group, score in checked.holding["useful"].items()}
    assert means == {"earlier link": 1.0, "last link": 0.0, "all": 0.5}
    assert checked.holding["noisy"]["earlier link"].mean == 1.0


def test_unreadable_replies_and_failures_count_as_invalid_and_are_named():
    def half(messages, key):
        if "/noisy/" in key:
            raise ToolError("the endpoint is down")
        return obedient(messages, key) if key.endswith(tuple(query(q, 1) for q in ASKED)) else "Document 1: alone"

    checked, _ = check(half)
    assert checked.readable["useful"].mean == 0.5
    assert checked.readable["noisy"].mean == 0.0
    score = checked.holding["useful"]["all"]
    assert (score.mean, score.n, score.n_invalid) == (1.0, 8, 4)
    assert math.isnan(checked.holding["noisy"]["all"].mean)
    assert len(checked.problems) == 12
    assert checked.problems.count("the endpoint is down") == 8
    assert math.isnan(checked.style["noisy"].words)
    assert obedience_table(checked).row_count == 4
    assert style_table(checked).row_count == 3


def test_which_link_a_query_asks_for():
    truth, question = WorldTruth(WORLD), ASKED[0]
    assert truth.group(record(question, query(question, 0))) == "earlier link"
    assert truth.group(record(question, query(question, 1).lower())) == "last link"
    assert truth.group(record(question, f"Nobody's {link(question, 1)[1]}")) == "last link"  # a name that was invented
    assert truth.group(record(question, "hello")) is None
    assert truth.group(record(Question("x", "Who?", ("y",)), query(question, 0))) is None


def test_the_same_relation_twice_in_a_chain():
    question = next(
        asked
        for asked in WORLD.questions(60, seed=1, hops=[3])
        if asked.metadata["chain"][0][1] == asked.metadata["chain"][2][1]
    )
    groups = [WorldTruth(WORLD).group(record(question, query(question, number))) for number in range(3)]
    assert groups == ["earlier link", "earlier link", "last link"]


def test_queries_of_which_nothing_is_known_and_later_pages_are_left_out():
    records = [*RECORDS, record(ASKED[0], "hello"), record(ASKED[0], "other", page=2), RECORDS[0]]
    checked, chat = check(obedient, records)
    assert checked.unasked == 1
    assert len(chat.asked) == 16
    with pytest.raises(DataError, match="not one can be checked"):
        check(obedient, [record(ASKED[0], "hello")])


def test_a_sample_follows_from_the_seed():
    keys = [{asked.key for asked in check(obedient, count=3, seed=seed)[1].asked} for seed in (0, 0, 1)]
    assert len(keys[0]) == 6
    assert keys[0] == keys[1] != keys[2]


def test_without_a_world_the_golden_answer_is_looked_for():
    question = Question("g", "who?", ("The Hague", "Den Haag"))
    truth, asked = GoldenTruth(), record(question, "anything")
    assert truth.group(asked) == "golden answer"
    assert truth.holds(asked, ["x", "It is in the hague, they say."])
    assert not truth.holds(asked, ["haguenau", "den haagse"])
    assert truth.group(record(Question("g", "who?", ("The",)), "x")) is None


def test_style_by_hand():
    """The second half of the drawn queries is what all are measured against, with n words of one document each."""
    records = [record(question, query(question, 0), "red red blue.", "Blue") for question in ASKED]
    drawn = [asked.key.split("/")[2] for asked in check(obedient, records)[1].asked]

    def reply(messages, key):
        return simulator_reply(["red blue", "green green"] if key.split("/")[2] in drawn[:2] else ["grey", "brown two"])

    checked, _ = check(reply, records)
    real, useful = checked.style["real"], checked.style["useful"]
    assert (real.documents, real.words, real.divergence) == (2.0, 2.0, 0.0)
    assert (useful.documents, useful.words) == (2.0, 1.75)
    # real: red 1/2, blue 1/2; simulated: red 1/4, blue 1/4, green 1/2; middle: 3/8, 3/8, 1/4
    expected = 0.5 * math.log2(4 / 3) + 0.5 * (0.5 * math.log2(2 / 3) + 0.5 * math.log2(2))
    assert useful.divergence == pytest.approx(expected)


@settings(max_examples=50)
@given(WORDS, WORDS)
def test_divergence_is_a_symmetric_number_of_bits(left, right):
    value = divergence(left, right)
    assert -1e-9 <= value <= 1 + 1e-9
    assert value == pytest.approx(divergence(right, left))
    assert divergence(left, [*left, *left]) == pytest.approx(0.0, abs=1e-9)


def test_divergence_of_nothing_in_common_and_of_nothing():
    assert divergence(["a b"], ["c"]) == pytest.approx(1.0)
    assert math.isnan(divergence([], ["c"]))
    assert math.isnan(divergence(["c"], ["..."]))
