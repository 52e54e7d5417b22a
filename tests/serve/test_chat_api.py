"""Requests of chat clients that are not about the documents, in our own words and the shapes of several clients; and
the text of a reply."""

import json
from types import SimpleNamespace

import httpx2
import pytest
from tests.serve.test_agent import WHO, ask, say

from evoseek.agent.shown import Answered
from evoseek.agent.support import support_of
from evoseek.serve.chat_api import completion, judgeable, read_request, side_task_reply
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory

QUOTED = "<chat_history>\nUSER: who is the mayor of Kalo?\nASSISTANT: Meri Tolu.\n</chat_history>"
LABELLED = 'User: "who is the mayor of Kalo?"\n\nAssistant: "Meri Tolu."'
TITLE = "who is the mayor of Kalo?"


@pytest.mark.parametrize(
    ("asked", "system", "history", "reply"),
    [
        (f'Generate a short title with an emoji.\nForm: {{"title": "..."}}\n{QUOTED}', "", (), {"title": TITLE}),
        (f'Create one to three broad tags.\n{{ "tags": ["one", "two"] }}\n{QUOTED}', "", (), {"tags": []}),
        (f'Suggest 3 follow-up questions.\n{QUOTED}\n{{"follow_ups": ["..."]}}', "", (), {"follow_ups": []}),
        (f'Generate search queries, if needed: {{"queries": ["..."]}}\n{QUOTED}', "", (), {"queries": []}),
        (f"Write a title of at most five words for this conversation:\n\n{LABELLED}", "", (), TITLE),
        (f"||>User: {WHO}\n||>Response: Meri\n\nWrite a concise title for it.", "", (), TITLE),
        (f"**Human**: {WHO}\n**AI**: Meri", "You write titles. Provide the title alone.", (), TITLE),
        (LABELLED, "Summarize the conversation into a title of ten words.", (), TITLE),
        ("Please generate a title for our conversation.", "", (WHO,), TITLE),
        ("Provide a title for the conversation, in its language, without marks.", "", (WHO,), TITLE),
        ("Give this chat a title.", "", (WHO,), TITLE),
        ("Create a title for the chat above", "", (WHO,), TITLE),
        ("Suggest a title for the chat in 5 words", "", (WHO,), TITLE),
        (f"Suggest an emoji for this chat.\n{QUOTED}", "", (), "💬"),
        (f"Suggest three follow-ups.\n{QUOTED}", "", (), ""),
        ("Generate a title.\n<messages>\n<user>hello there</user>\n</messages>", "", (), "<user>hello there</user>"),
        (f"Generate a title for the <conversation> below.\n{LABELLED}", "", (), TITLE),
        (f"Generate a title.\nUser: {'long ' * 40}\nBot: so", "", (), ("long " * 12).strip()),
    ],
)
def test_what_is_about_the_chat_is_answered_from_its_words(asked, system, history, reply):
    found = side_task_reply(system, asked, history)
    assert found is not None
    assert (json.loads(found) if isinstance(reply, dict) else found) == reply


@pytest.mark.parametrize(
    ("asked", "system", "history"),
    [
        (WHO, "", ()),
        (WHO, "Generate a title, tags and follow-up questions.", ()),
        ("What title does the manual give the chapter on pumps?", "", ()),
        ("Write the title of the manual.", "", ()),
        ("Suggest questions that the manual answers.", "", ()),
        (f"{QUOTED}\nWho was mayor before her?", "", ()),
        (f"{LABELLED}\n\nIs that right?", "", ()),
        (f"{LABELLED}\n\nIn which title does this stand?", "", ()),
        (
            "User: what is the title of the log?\nWho wrote it? Give the title.",
            "",
            (),
        ),  # nobody replied: no conversation
        ("User: generate a title\nAssistant: which?", "", ()),  # within the quotation
        ("Give me the title of the page.", "", (WHO,)),
        ("Give the title of the discussion paper that introduced the tax.", "", (WHO,)),
        ("Give me the title of the chapter about the dialogue of Plato.", "", (WHO,)),
        ("Please write the title of the book on discussion.", "", (WHO,)),
        ("Return the title of the conversation analysis manual.", "", (WHO,)),
        ("Write the title of the chat room policy.", "", (WHO,)),
        ("Generate tags for our conversation.", "", (WHO,)),
        ("</chat> generate a title <chat>", "", ()),
        ("", "", ()),
    ],
)
def test_a_question_is_one_even_if_it_speaks_of_titles(asked, system, history):
    assert side_task_reply(system, asked, history) is None


@pytest.mark.parametrize(
    "text", ["<chat>" * 3_000, "user:" * 4_000, "user:\n" * 3_000, "generate " * 2_000, '"a' * 9_000]
)
def test_a_hostile_message_takes_no_time(text):
    import time

    start = time.process_time()
    side_task_reply(text, text, ())
    side_task_reply("", f"user: a\nai: b\ngenerate a title {text}", ())
    assert time.process_time() - start < 1


def test_no_rollout_is_made_for_it(served):
    before = len(served.sampler.requests)
    task = f'Generate a title. {{"title": "..."}}\n{QUOTED}'
    reply = ask(served, say(task))
    assert json.loads(reply.choices[0].message.content) == {"title": TITLE}
    assert (reply.usage.total_tokens, reply.evoseek, reply.choices[0].finish_reason) == (0, {"side_task": True}, "stop")
    chunks = list(ask(served, say(task), stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == json.dumps(
        {"title": TITLE}
    )
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices] == [None, "stop"]
    assert chunks[-1].usage.total_tokens == 0
    chat = [say(WHO), say("Meri Tolu", "assistant"), say("Please write a title for our chat.")]
    assert ask(served, *chat).choices[0].message.content == WHO
    assert len(served.sampler.requests) == before
    reply = httpx2.post(f"{served.url}/v1/chat/completions", json={"model": "gpt", "messages": [say(task)]})
    assert reply.status_code == 404


def test_the_sources_of_citations_follow_the_answer():
    """They are lines of the text, and numbers in the object."""
    pump = Passage("a#0", "a", "Pump", "To stop the pump, press the red key.", 0, 36, file="a.md", page=3)
    found = (ToolResult(ToolCall("search", {}), "", (pump,)),)
    asked = Question("q", "How do I stop the pump?", ())
    answer = "Press the red key. Ask Ada Birk."
    rolled = Trajectory("t", asked, "solver", (), (), (), StopReason.ANSWERED, answer, opening=found)
    answered = Answered(rolled, support_of(rolled), refuses=True)
    request = read_request(json.dumps({"model": "m", "messages": [{"role": "user", "content": asked.text}]}).encode())
    reply = completion(SimpleNamespace(id="chatcmpl-1"), answered, request)
    assert reply["choices"][0]["message"]["content"] == "Press the red key [1].\n\n[1] Pump, page 3"
    assert reply["evoseek"]["support"][0]["numbers"] == [1]
    assert judgeable("chatcmpl-1", answered).answer == "Press the red key."
