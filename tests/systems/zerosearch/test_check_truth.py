"""What documents can say in answer to a query, and that an invention is not taken for the truth."""

from evoseek.systems.zerosearch.check import golden_claims, world_claims
from evoseek.systems.zerosearch.searches import SearchRecord
from evoseek.types import Passage, Question
from evoseek.world.world import World

WORLD = World.generate(5, 200, "evaluation")
CLAIMS_OF = world_claims(WORLD)
QUESTION = WORLD.questions(1, seed=0, hops=[2])[0]
EARLIER, LAST = QUESTION.metadata["chain"]
OF_ANOTHER = "last relation of another, golden answer"
AN_EARLIER_LINK = {"earlier link, some object", "earlier link, true object", "earlier link, golden answer"}


def record(question, query):
    return SearchRecord(question, query, (Passage("p", "p", "", "x"),))


def query(link):
    return f"{link[0]}'s {link[1]}"


def said(claims, *texts):
    return {name for name, says in claims.items() if says(texts)}


def test_which_link_a_query_asks_for():
    assert set(CLAIMS_OF(record(QUESTION, query(EARLIER)))) == AN_EARLIER_LINK
    assert set(CLAIMS_OF(record(QUESTION, query(LAST).lower()))) == {"last link, golden answer"}
    assert set(CLAIMS_OF(record(QUESTION, f"Nobody's {LAST[1]}"))) == {OF_ANOTHER}
    assert not CLAIMS_OF(record(QUESTION, "hello"))
    assert not CLAIMS_OF(record(Question("x", "Who?", ("y",)), query(EARLIER)))
    if EARLIER[1] != LAST[1]:
        assert not CLAIMS_OF(record(QUESTION, f"Nobody's {EARLIER[1]}"))


def test_of_an_earlier_link_an_invention_is_some_object_and_not_the_true_one():
    claims = CLAIMS_OF(record(QUESTION, query(EARLIER)))
    assert said(claims, f"{query(EARLIER)} is {EARLIER[2]}.") == {
        "earlier link, some object",
        "earlier link, true object",
    }
    assert said(claims, f"{query(EARLIER)} is Nobody.") == {"earlier link, some object"}
    assert said(claims, f"{query(EARLIER)} is {LAST[2]}.") == AN_EARLIER_LINK - {"earlier link, true object"}
    assert said(claims, f"{query(LAST)} is {LAST[2]}.", "x") == set()


def test_of_the_last_link_the_golden_answer_alone_counts():
    claims = CLAIMS_OF(record(QUESTION, query(LAST)))
    assert said(claims, f"{query(LAST)} is {LAST[2]}.") == {"last link, golden answer"}
    assert said(claims, f"{query(LAST)} is Nobody.", LAST[2]) == set()


def test_the_last_relation_of_another_subject_is_told_apart():
    claims = CLAIMS_OF(record(QUESTION, f"Nobody's {LAST[1]}"))
    assert said(claims, f"Nobody's {LAST[1]} is {LAST[2]}.") == {OF_ANOTHER}
    assert said(claims, f"{query(LAST)} is {LAST[2]}.") == set()


def test_the_same_relation_twice_in_a_chain():
    question = next(
        asked
        for asked in WORLD.questions(60, seed=1, hops=[3])
        if asked.metadata["chain"][0][1] == asked.metadata["chain"][2][1]
    )
    claims = [set(CLAIMS_OF(record(question, query(link)))) for link in question.metadata["chain"]]
    assert claims == [AN_EARLIER_LINK, AN_EARLIER_LINK, {"last link, golden answer"}]


def test_without_a_world_the_golden_answer_is_looked_for():
    claims = golden_claims(record(Question("g", "who?", ("The Hague", "Den Haag")), "anything"))
    assert said(claims, "x", "It is in the hague, they say.") == {"golden answer"}
    assert said(claims, "haguenau", "den haagse") == set()
    assert not golden_claims(record(Question("g", "who?", ("The",)), "x"))
