"""Responses as chat completions; `test_server` has them with OpenAI's client."""

from evoseek.renderers.conversation import WrittenReply
from evoseek.rollout.gateway.chat_requests import AgentChoice, AgentReply, read_request
from evoseek.rollout.gateway.responses import chat_body, response_of
from evoseek.types import Completion, ToolCall


def test_the_items_of_a_turn_are_one_message():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "who?"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "a", "name": "search", "arguments": '{"query": "mayor"}'},
        {"type": "function_call", "call_id": "b", "name": "search", "arguments": '{"query": "kalo"}'},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "function_call_output", "call_id": "b", "output": "two"},
    ]
    request = read_request(chat_body({"instructions": "Be short.", "input": items, "max_output_tokens": 5}))
    system, user, turn, one, two = request.said
    assert [said.message.role for said in (system, user, turn, one, two)] == [
        *("system", "user", "assistant", "tool", "tool")
    ]
    assert (turn.thought, turn.message.content, len(turn.message.tool_calls)) == ("why", "I look.", 2)
    assert request.most == 5


def test_what_comes_back_is_what_was_sent():
    written = WrittenReply("", (ToolCall("search", {"query": "mayor"}),), "why")
    reply = AgentReply(0, (1,), (AgentChoice(written, Completion((2,), (-0.5,), "stop")),))
    body = response_of(reply, read_request({"messages": [{"role": "user", "content": "x"}]}))
    (said,) = read_request(chat_body({"input": body["output"]})).said
    assert (said.message.tool_calls, said.message.content, said.thought) == (written.calls, "", "why")


def test_a_cut_reply_is_incomplete():
    reply = AgentReply(0, (1,), (AgentChoice(WrittenReply("Me"), Completion((2,), (-0.5,), "length")),))
    body = response_of(reply, read_request({"messages": [{"role": "user", "content": "x"}]}))
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
