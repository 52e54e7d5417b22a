"""The simulated engine: bound to its rollout, strict about replies, reproducibly noisy."""

import asyncio
import random
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.scripted import ScriptedChat

from evoseek.errors import ReplyError, ToolError
from evoseek.protocols import QuestionEngine
from evoseek.renderers.encoding import plain
from evoseek.rollout.prompts import load_prompts
from evoseek.systems.zerosearch.engine import SimulatedEngine, parse_documents, simulator_reply
from evoseek.types import Question

KOTO = Question("q1", "What is Koto's employer's headquarters?", ("Jirebe",))
GOOD = "Document 1: Koto works at Lovezo.\nDocument 2: Lovezo sits in Jirebe."


def engine_of(script, **options):
    prompt = load_prompts("tiny")
    return SimulatedEngine(ScriptedChat(script), prompt, **{"max_words": 20, "seed": 0, **options})


def search(engine, *queries, question=KOTO, trajectory="t/0", k=2):
    return asyncio.run(engine.for_question(question, trajectory).search(queries, k))


def test_it_asks_with_question_answer_query_and_kind_and_gives_the_documents_as_passages():
    engine = engine_of(lambda messages, key: GOOD)
    (found,) = search(engine, "Koto's employer")
    assert [(p.id, p.title, p.text) for p in found] == [
        ("t/0/search-0/1", "", "Koto works at Lovezo."),
        ("t/0/search-0/2", "", "Lovezo sits in Jirebe."),
    ]
    (asked,) = engine.chat.asked
    assert asked.key == "t/0/search-0"
    assert plain(asked.messages[0].content).strip() == (
        "simulate useful documents : What is Koto's employer's headquarters is Jirebe query Koto's employer"
    )
    assert engine.counts == {"queries": 1, "noisy": 0}


def test_endless_queries_do_not_outgrow_the_simulator():
    engine = engine_of(lambda messages, key: GOOD)
    search(engine, "Koto " * 5_000, "Lovezo")
    for asked in engine.chat.asked:
        assert 400 <= len(plain(asked.messages[0].content)) < 1_000


def test_of_an_unanswerable_question_no_document_is_useful():
    engine = engine_of(lambda messages, key: GOOD)
    search(engine, "Koto", "Koto's employer", question=Question("q1", "Who is Koto?", (), {"answerable": False}))
    prompts = [plain(asked.messages[0].content) for asked in engine.chat.asked]
    assert all(prompt.startswith("simulate noisy documents") for prompt in prompts)
    assert engine.counts == {"queries": 2, "noisy": 2}


def test_it_is_bound_first_and_as_local_as_its_chat():
    engine = engine_of(lambda messages, key: GOOD)
    assert isinstance(engine, QuestionEngine)
    assert engine.for_question(KOTO, "t/0").is_local == engine.chat.is_local


def test_queries_of_a_rollout_are_numbered_over_its_calls_and_the_simulator_is_told_the_earlier_ones():
    engine = engine_of(lambda messages, key: GOOD)
    bound = engine.for_question(KOTO, "t/0")

    async def searches():
        await bound.search(["a", "b"], 2)
        await bound.search(["c"], 2)
        await bound.search(["a"], 2)
        await bound.search(["c"], 2)

    asyncio.run(searches())
    assert [asked.key for asked in engine.chat.asked] == [f"t/0/search-{number}" for number in range(5)]
    told = [plain(asked.messages[0].content).strip().partition(" is Jirebe ")[2] for asked in engine.chat.asked]
    assert told == [
        "query a",
        "earlier a query b",
        "earlier a , b query c",
        "earlier b , c query a",
        "earlier a , b query c",
    ]


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_whatever_order_replies_come_in_a_rollout_is_given_its_own_documents(order):
    """Questions are bound to rollouts, never to places in a batch; some of the rollouts do not search at all."""
    gates = {}

    class Gated:
        name, is_local = "gated", True

        async def chat(self, messages, *, key, form=None):
            await gates[key.split("/")[0]].wait()
            answer = plain(messages[0].content).split(" query ")[0].rsplit(" is ", 1)[1]
            return f"Document 1: it is {answer}."

    questions = [Question(f"q{n}", f"What is thing {n}?", (f"answer-{n}",)) for n in range(8)]
    searching = questions[1::2]

    async def play():
        gates.update((question.id, asyncio.Event()) for question in searching)
        engine = replace(engine_of({}), chat=Gated())
        calls = [
            asyncio.ensure_future(engine.for_question(question, f"{question.id}/0").search(["thing"], 1))
            for question in searching
        ]
        for index in order:
            gates[searching[index].id].set()
            await asyncio.sleep(0)
        return [(await call)[0][0].text for call in calls]

    assert asyncio.run(play()) == [f"it is {question.golden_answers[0]}." for question in searching]


class TestNoise:
    def kinds(self, engine, rollouts, queries=5):
        for number in range(rollouts):
            search(engine, *["q"] * queries, trajectory=f"t/{number}")
        return [plain(asked.messages[0].content).split()[1] for asked in engine.chat.asked]

    @pytest.mark.parametrize(("noise", "kind"), [(0.0, "useful"), (1.0, "noisy")])
    def test_none_and_all(self, noise, kind):
        assert set(self.kinds(engine_of(lambda messages, key: GOOD, noise=noise), 4)) == {kind}

    def test_the_share_is_the_probability_and_differs_within_a_rollout(self):
        engine = engine_of(lambda messages, key: GOOD, noise=0.3)
        kinds = self.kinds(engine, 200)
        assert 250 <= kinds.count("noisy") <= 350  # 1000 draws: 300 +- 3.4 standard deviations
        assert engine.counts == {"queries": 1000, "noisy": kinds.count("noisy")}
        assert len({tuple(kinds[i : i + 5]) for i in range(0, 1000, 5)}) > 10

    def test_a_query_s_draw_follows_from_seed_rollout_and_number_alone(self):
        """The same draws in another order of rollouts, with other questions, and with other rollouts left out."""

        def draws(numbers, question, seed=0):
            engine = engine_of(lambda messages, key: GOOD, noise=0.5, seed=seed)
            for number in numbers:
                search(engine, "q", "r", trajectory=f"t/{number}", question=question)
            return {asked.key: plain(asked.messages[0].content).split()[1] for asked in engine.chat.asked}

        everything = draws(range(20), KOTO)
        other = draws(random.Random(1).sample(range(20), 11), Question("other", "What?", ("x",)))
        assert other.items() <= everything.items()
        assert draws(range(20), KOTO, seed=1) != everything

    def test_a_noisier_step_keeps_the_noise_there_was(self):
        """One draw a query, compared with the probability: more noise only adds."""

        def noisy(noise):
            engine = engine_of(lambda messages, key: GOOD, noise=noise)
            return {i for i, kind in enumerate(self.kinds(engine, 20)) if kind == "noisy"}

        assert noisy(0.2) <= noisy(0.5) <= noisy(0.8)


class TestFailures:
    def test_an_unreadable_reply_is_asked_for_once_more_with_other_random_numbers(self):
        engine = engine_of({"t/0/search-0": "Document 1: only one.", "t/0/search-0/again": GOOD})
        assert len(search(engine, "q")[0]) == 2
        assert engine.counts == {"queries": 1, "noisy": 0, "repeated": 1}

    def test_two_unreadable_replies_are_a_failure_never_an_empty_result(self):
        engine = engine_of(lambda messages, key: "I cannot do that.")
        with pytest.raises(ReplyError, match=r"'I cannot do that\.'.*documents 1 to 2"):
            search(engine, "q")
        assert len(engine.chat.asked) == 2
        assert engine.counts == {"queries": 1, "noisy": 0, "repeated": 1, "failed": 1}

    def test_a_reply_that_was_cut_is_asked_for_once_more(self):
        def script(messages, key):
            if key.endswith("/again"):
                return GOOD
            raise ReplyError("cut at 10 tokens")

        assert len(search(engine_of(script), "q")[0]) == 2

    def test_a_chat_that_fails_is_not_asked_again_it_has_retries_of_its_own(self):
        def script(messages, key):
            raise ToolError("The endpoint is down.")

        engine = engine_of(script)
        with pytest.raises(ToolError, match="The endpoint is down"):
            search(engine, "q")
        assert len(engine.chat.asked) == 1
        assert engine.counts["failed"] == 1

    def test_one_failing_query_fails_the_call(self):
        """Half of the queries answered is no result: the policy would take the rest for empty."""
        engine = engine_of(lambda messages, key: GOOD if "search-0" in key else "nothing")
        with pytest.raises(ToolError):
            search(engine, "q", "r")


class TestParse:
    def test_documents_in_lines(self):
        assert parse_documents(GOOD, 2, 20) == ["Koto works at Lovezo.", "Lovezo sits in Jirebe."]

    def test_as_the_tiny_tokenizer_writes(self):
        assert parse_documents("document 1 : koto ' s . document 2 : jirebe .", 2, 20) == ["koto ' s .", "jirebe ."]

    @pytest.mark.parametrize(
        "reply",
        [
            "Document 1: a\nDocument 2: b",
            "**Document 1:** a\n\n**Document 2:** b",
            "**Document 1**: a\n**Document 2**: b",
            "### Document 1: a\n### Document 2: b",
            "- Document 1: a\n- Document 2: b",
            "> DOCUMENT 1 : a\n> document 2:b",
            "```\nDocument 1: a\nDocument 2: b\n```",
            "```text\nDocument 1: a\nDocument 2: b\n```\n",
            "<think>\nDocument 1: no.\n</think>\n\nDocument 1: a\nDocument 2: b",
        ],
    )
    def test_as_chat_models_dress_it(self, reply):
        assert parse_documents(reply, 2, 20) == ["a", "b"]

    def test_a_marker_within_a_line_is_text(self):
        assert parse_documents("Document 1: see document 2: there\nDocument 2: b", 2, 20)[0] == "see document 2: there"

    @pytest.mark.parametrize(
        "reply",
        [
            "",
            "Koto works at Lovezo.",
            "Document 1: one",
            "Document 1: one Document 2: two Document 3: three",
            "Document 2: two Document 1: one",
            "Document 1: one Document 1: two",
            "Document 1: one Document 3: three",
            "Document 0: one Document 1: two",
            "Document 1: Document 2: two",
            "Document 1: one Document 2:",
            "Here you are. Document 1: one Document 2: two",
            "Document 1: " + "word " * 21 + "Document 2: two",
            "Document 01: one Document 2: two",
            "Document one: one Document two: two",
            "Document 1: one\nDocument 2: two\nDocument 2: three",
            "Document 1: one\nDocument 2: two\n\nNote: none of them holds the answer, Jirebe.",
            "Document 1: one\nmore of it\nDocument 2: two",
            "Document 1: " + "\u5b57" * 241 + "\nDocument 2: two",
            "Document 1: one\nDocument 2: two\n<think> Jirebe </think>",
        ],
    )
    def test_all_else_is_unreadable(self, reply):
        with pytest.raises(ReplyError):
            parse_documents(reply, 2, 20)

    def test_the_longest_document_there_may_be(self):
        assert parse_documents("Document 1: " + "word " * 20, 1, 20)

    @given(st.lists(st.text("abc .:", min_size=1).filter(str.strip), min_size=1, max_size=12))
    def test_what_is_shown_to_a_simulator_in_tuning_is_read_back(self, texts):
        expected = [" ".join(text.split()) for text in texts]
        assert parse_documents(simulator_reply(texts), len(texts), 1000) == expected
