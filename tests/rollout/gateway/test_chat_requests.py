"""Requests of chat completions, as clients really send them."""

import json

import pytest

from evoseek.errors import DataError
from evoseek.renderers.conversation import WrittenReply
from evoseek.rollout.gateway.chat_requests import AgentChoice, AgentReply, completion_of, read_request, stream_of
from evoseek.types import Completion, Message, ToolCall

USER = {"role": "user", "content": "who?"}


def test_roles_parts_calls_and_thoughts_are_read():
    function = {"name": "search", "arguments": '{"query":  "mayor"}'}
    request = read_request(
        {
            "model": "any",
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": function}]},
                {"role": "assistant", "content": "Meri", "reasoning_content": " why \n"},
                {"role": "tool", "tool_call_id": "x", "content": "found"},
            ],
        }
    )
    system, calls, thinks, result = request.said
    assert system.message == Message("system", "one\ntwo")
    assert calls.message == Message("assistant", "", (ToolCall("search", {"query": "mayor"}),))
    assert (thinks.thought, thinks.shown.content) == ("why", "<think>\nwhy\n</think>\n\nMeri")
    assert result.message.role == "tool"


def test_both_limits_of_tokens_a_single_stop_and_hidden_tools():
    tools = [{"type": "function", "function": {"name": "search", "strict": True}}]
    body = {"messages": [USER], "max_tokens": 9, "max_completion_tokens": 7, "stop": "</a>", "tools": tools}
    request = read_request(body)
    assert (request.most, request.stop_strings, len(request.schemas)) == (7, ("</a>",), 1)
    assert read_request({**body, "tool_choice": "none"}).schemas == []
    assert read_request({"messages": [USER], "stop": ["a", ""]}).stop_strings == ("a",)
    assert read_request({"messages": [USER], "stop": None, "n": None, "stream_options": None}).most is None


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [{"role": "function", "content": "x"}]},
        {"n": 0},
        {"max_tokens": 0},
        {"tools": [{"type": "web"}]},
        [],
    ],
)
def test_what_is_not_supported_is_refused(change):
    with pytest.raises(DataError, match="not valid"):
        read_request({"messages": [USER], **change} if isinstance(change, dict) else change)


def test_a_stream_adds_up_to_the_whole_reply():
    calls = (ToolCall("search", {"query": "ä"}), ToolCall("open", {}))
    written = WrittenReply("", calls, "why")
    reply = AgentReply(3, (1, 2), (AgentChoice(written, Completion((4, 5), (-0.5, -1.0), "stop")),))
    request = read_request({"messages": [USER], "stream_options": {"include_usage": True}, "logprobs": False})
    whole = completion_of(reply, request)
    lines = [line.removeprefix("data: ").strip() for line in stream_of(reply, request)]
    assert lines.pop() == "[DONE]"
    first, last, usage = map(json.loads, lines)
    message = whole["choices"][0]["message"]
    delta = first["choices"][0]["delta"]
    assert [call.pop("index") for call in delta["tool_calls"]] == [0, 1]
    assert delta == message
    assert message["tool_calls"][0]["function"] == {"name": "search", "arguments": '{"query": "ä"}'}
    assert (first["choices"][0]["finish_reason"], last["choices"][0]["finish_reason"]) == (None, "tool_calls")
    assert usage["usage"] == whole["usage"] == {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
