import pytest

from evoseek.policy.chat_template import parse_hermes, parse_json
from evoseek.types import ToolCall

CALL = ToolCall("search", {"query": "mayor"})


def test_hermes_calls_stand_between_tags_in_order():
    text = (
        'I look. <tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call>'
        '<tool_call>{"name": "browse"}</tool_call>'
    )
    assert parse_hermes(text) == (CALL, ToolCall("browse", {}))
    assert parse_hermes("no call") == ()


def test_a_json_call_is_the_whole_turn():
    assert parse_json(' {"name": "search", "parameters": {"query": "mayor"}} ') == (CALL,)
    assert parse_json('<|python_tag|>{"name": "search", "parameters": {"query": "mayor"}}') == (CALL,)
    assert parse_json('The call is {"name": "search"}') == ()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('{"name": "search", "arguments": {"query": ', "not valid JSON"),
        ('{"name": 3}', "name"),
        ('["search"]', '"name"'),
        ('{"name": "search", "arguments": "mayor"}', "not an object"),
        ("[" * 100_000, "not valid JSON"),
        ("{'name': 'search'}", "not valid JSON"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(body, problem):
    with pytest.raises(ValueError, match=problem):
        parse_hermes(f"<tool_call>{body}</tool_call>")


def test_an_open_call_and_trailing_text_are_problems():
    with pytest.raises(ValueError, match="not closed"):
        parse_hermes('<tool_call>{"name": "search"}')
    with pytest.raises(ValueError, match="not valid JSON"):
        parse_json('{"name": "search"} and more')
