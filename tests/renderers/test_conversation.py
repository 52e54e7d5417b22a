"""Conversations of other programs: the same ids as the own renderers give, and no control token from their text."""

import pytest

from evoseek.renderers.conversation import Conversation, WrittenReply
from evoseek.renderers.encoding import trusted
from evoseek.renderers.tags import TagRenderer
from evoseek.renderers.tool_calls import ToolCallRenderer
from evoseek.types import Message, ToolCall

SCHEMA = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call>'
ASKED = "search with <search> query </search> : who is the mayor ?"


@pytest.mark.parametrize("name", ["qwen", "smollm2", "llama"])
def test_results_and_messages_after_a_turn_are_encoded_as_the_own_loop_does(made, name):
    tokenizer = made(name)
    own, other = ToolCallRenderer(tokenizer, [SCHEMA]), Conversation(tokenizer, "tools", [SCHEMA])
    written = tokenizer.encode("Meri", add_special_tokens=False)
    results = [Message("tool", "Kalo : Meri")]
    assert other.after(results, written) == own.render_observation(["Kalo : Meri"], written)
    assert other.after([Message("user", "and more")], written) == own.render_notice(trusted("and more"), written)
    assert other.prompt([Message("user", "who is it ?")]) == own.render_prompt(
        [Message("user", trusted("who is it ?"))]
    )


def test_the_tag_format_without_a_template_is_the_own_one(made):
    tokenizer = made("base")
    own, other = TagRenderer(tokenizer), Conversation(tokenizer, "tags", [])
    assert other.prompt([Message("user", ASKED)]) == own.render_prompt([Message("user", trusted(ASKED))])
    assert other.after([Message("tool", "kalo : meri")], ()) == own.render_observation(["kalo : meri"])
    history = [Message("user", "who ?"), Message("assistant", "", (ToolCall("search", {"query": "mayor"}),))]
    text = tokenizer.decode(other.prompt([*history, Message("tool", "kalo : meri")]))
    assert "<search> mayor </search>" in text
    assert "<information>\nkalo : meri\n</information>" in text


@pytest.mark.parametrize("name", ["qwen", "smollm2", "llama", "words", "base"])
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_no_text_of_a_message_becomes_a_control_token(made, name, role):
    """Nor do the names and arguments of calls, which a page may have put there."""
    tokenizer = made(name)
    tools = [SCHEMA] if name in ("qwen", "smollm2") else []
    conversation = Conversation(tokenizer, "auto", tools)
    control = tokenizer.eos_token if name != "words" else "<ctl>"

    def count(text):
        calls = (ToolCall("search", {"query": text, text: [text]}),) if role == "assistant" and tools else ()
        before = [] if role == "system" else [Message("user", "who ?")]
        messages = [*before, Message(role, f"a {text} b", calls), Message("user", "so ?")]
        return list(conversation.prompt(messages)).count(tokenizer.convert_tokens_to_ids(control))

    assert count(control) == count("plain")


def test_a_completion_is_read_with_tools_and_passed_on_without(made):
    tokenizer = made("qwen")
    ids = tokenizer.encode(f"<think>\nwhy\n</think>\n\n{CALL}<|im_end|>", add_special_tokens=False)
    read = Conversation(tokenizer, "tools", [SCHEMA]).read(ids)
    assert read == WrittenReply("", (ToolCall("search", {"query": "mayor"}),), "why")
    assert Conversation(tokenizer, "tools", []).read(ids).text == f"<think>\nwhy\n</think>\n\n{CALL}"
    broken = tokenizer.encode("why\n</think>\n<tool_call>{</tool_call><|im_end|>", add_special_tokens=False)
    assert Conversation(tokenizer, "tools", [SCHEMA]).read(broken).text == "<tool_call>{</tool_call>"
    answer = made("base").encode("<think> why </think> <answer> meri </answer>")
    assert Conversation(made("base"), "tags", [SCHEMA]).read(answer).text == "meri"


def test_a_turn_stops_where_it_ends_at_the_programs_strings_and_after_a_call_of_its_tools(made):
    with_tools, without = (Conversation(made("words"), "tags", tools) for tools in ([SCHEMA], []))
    assert with_tools.stop(("END",)).strings == ("END", "</search>", "</answer>")
    assert without.stop(("END",)).strings == ("END",)
    assert without.stop(()).token_ids
