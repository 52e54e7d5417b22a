"""Follow-ups by a scripted policy, which rewrites as a person did, and reads without a mistake."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
from tests.doubles.scripted import ScriptedChat

from evoseek.agent.answer import Answerer, follow_up_roller
from evoseek.agent.support import by_words
from evoseek.renderers.encoding import plain
from evoseek.rollout.environments import SearchFirstEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import ChatRoller
from evoseek.rollout.tools import SearchTool
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Message


@pytest.fixture(scope="module")
def bench(script):
    return script("followups")


@pytest.fixture(scope="module")
def answerer(bench, tmp_path_factory):
    index = LexicalIndex.open(bench.index(tmp_path_factory.mktemp("followups") / "index"))
    every, prompts = bench.conversations(), load_prompts("default")

    def reply(messages, key):
        _, number, place, *rest = key.split("/")
        turn = every[int(number)][int(place)]
        if rest[0] == "alone":
            return turn.alone
        golden = turn.golden_answers[0]
        return golden if golden in messages[-1].content else "Not found in the documents."

    env = SearchFirstEnv([SearchTool(index, 3, template=prompts["observation"])], prompts, max_calls=0)
    roller = ChatRoller(ScriptedChat(reply), env, Limits(max_tool_calls=0))
    rewriter = partial(follow_up_roller, roller, prompts)
    return Answerer("scripted", roller, by_words, True, True, rewriter=rewriter)


def test_the_conversations_are_twenty_of_four_turns_and_their_documents_answer_them(bench):
    every = bench.conversations()
    assert [len(turns) for turns in every] == [4] * 20
    texts = {path.name: path.read_text() for path in (bench.FOLDER / "documents").iterdir()}
    for turn in (turn for turns in every for turn in turns):
        assert [name for name, text in texts.items() if turn.golden_answers[0] in text] == turn.evidence
    assert all(turns[0].question == turns[0].alone for turns in every)
    assert all(turn.question != turn.alone for turns in every for turn in turns[1:])


def test_right_answers_with_and_without_rewriting(bench, answerer):
    """A search shows three of the ten documents of a kind, and 14 later turns name theirs: 14 + 0.3 x 46 = 27.8."""
    right = {}
    for arm in bench.ARMS:
        every = asyncio.run(bench.answered(answerer, arm))
        first = [one for (_, place), one in every.items() if place == 0]
        later = [one for (_, place), one in every.items() if place]
        right[arm] = tuple(bench.counted(own)["right"] for own in (first, later))
    assert right == {"as asked": (20, 27), "rewritten": (20, 60), "alone": (20, 60)}


def test_the_question_that_stands_alone_is_searched_and_the_conversation_is_still_given(bench, answerer):
    (turns, *_), history = bench.conversations(), []
    for turn in turns[:2]:
        answer = asyncio.run(answerer.answer(turn.question, f"rewritten/0/{turns.index(turn)}", history=history))
        history += [Message("user", turn.question), Message("assistant", turn.golden_answers[0])]
    (search,) = answer.trajectory.results
    assert search.call.arguments == {"query": turns[1].alone}
    assert answer.json["question"] == turns[1].alone
    asked = answerer.solver.chat.asked
    rewriting, answering = asked[-2:]
    assert (rewriting.key, len(rewriting.messages)) == ("rewritten/0/1/alone/turn-0", 1)
    said = f"User: {turns[0].question}\nAssistant: {turns[0].golden_answers[0]}\n\nQuestion: {turns[1].question}\n"
    assert said in plain(rewriting.messages[0].content)
    assert [message.content for message in answering.messages[:2]] == [message.content for message in history[:2]]


@pytest.mark.parametrize("written", ["", "  \n", "Not found in the documents.", "word " * 3])
def test_a_rewriting_without_a_question_changes_nothing(answerer, written):
    """So does a failed one; anything else that the model writes is taken."""

    def reply(messages, key):
        return written if "/alone/" in key else "30 months"

    roller = replace(answerer.solver, chat=ScriptedChat(reply))
    asking = replace(answerer, solver=roller, rewriter=partial(follow_up_roller, roller, load_prompts("default")))
    history = [Message(role, text) for role, text in (("user", "Which machine?"), ("assistant", "The Alba."))]
    answer = asyncio.run(asking.answer("And the warranty?", "t", history=history))
    assert answer.trajectory.question.text == ("word word word" if "word" in written else "And the warranty?")
