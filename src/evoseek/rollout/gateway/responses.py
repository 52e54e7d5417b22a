"""OpenAI's responses: requests as chat completions, and replies as items."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evoseek.errors import DataError
from evoseek.rollout.gateway.chat_requests import MODEL, AgentReply, AgentRequest, arguments_of, call_id, event

_TURN = ("reasoning", "function_call")


def chat_body(body: Any) -> dict[str, Any]:
    """Return the body of the same request of chat completions. Raises DataError for what has no counterpart there."""
    try:
        if body.get("previous_response_id") or body.get("conversation"):
            raise DataError("Earlier responses are not kept. Send the whole input each time.")
        given = body.get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        instructions = body.get("instructions")
        first = [{"role": "system", "content": instructions}] if instructions else []
        tools = [_tool(tool) for tool in body.get("tools") or ()]
        return {
            "messages": [*first, *_messages(items)],
            "tools": tools or None,
            "tool_choice": body.get("tool_choice"),
            "max_tokens": body.get("max_output_tokens"),
            "stream": body.get("stream"),
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"The request is not valid ({error!r}). Expected messages and functions as input.") from error


def response_of(reply: AgentReply, request: AgentRequest) -> dict[str, Any]:
    """Return the body of a whole reply."""
    usage = reply.usage
    return {
        **_head(reply, "completed" if reply.choices[0].finish_reason != "length" else "incomplete"),
        "output": _items(reply),
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def response_stream(reply: AgentReply, request: AgentRequest) -> Iterator[str]:
    """Yield the events of a stream."""
    for number, (name, fields) in enumerate(_events(reply, request)):
        yield event({"type": name, "sequence_number": number, **fields}, name)


def _events(reply: AgentReply, request: AgentRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    began = {**_head(reply, "in_progress"), "output": [], "usage": None}
    yield "response.created", {"response": began}
    yield "response.in_progress", {"response": began}
    whole = response_of(reply, request)
    for place, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": place}
        empty = {"message": {"content": []}, "function_call": {"arguments": ""}, "reasoning": {"summary": []}}
        started = {**item, **empty[item["type"]], "status": "in_progress"}
        yield "response.output_item.added", {"output_index": place, "item": started}
        if item["type"] == "message":
            (part,) = item["content"]
            at = {**at, "content_index": 0}
            yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
            yield "response.output_text.delta", {**at, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**at, "part": part}
        elif item["type"] == "function_call":
            yield "response.function_call_arguments.delta", {**at, "delta": item["arguments"]}
            yield "response.function_call_arguments.done", {**at, "arguments": item["arguments"], "name": item["name"]}
        yield "response.output_item.done", {"output_index": place, "item": item}
    yield f"response.{whole['status']}", {"response": whole}


def _messages(items: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages of an input. The items of one turn of the model are one message."""
    turn: dict[str, Any] = {}
    for item in items:
        kind = item.get("type", "message")
        if kind in _TURN or (kind == "message" and item["role"] == "assistant"):
            if kind == "reasoning":
                turn["reasoning"] = "\n".join(part["text"] for part in item.get("summary") or ())
            elif kind == "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                turn["tool_calls"] = [*turn.get("tool_calls", ()), {"function": function}]
            else:
                turn["content"] = item["content"]
            continue
        if turn:
            yield {"role": "assistant", **turn}
            turn = {}
        if kind == "message":
            yield {"role": item["role"], "content": item["content"]}
        elif kind == "function_call_output":
            yield {"role": "tool", "content": item["output"]}
        else:
            raise DataError(f"The input has an item of the type {kind!r}. Expected messages and function calls.")
    if turn:
        yield {"role": "assistant", **turn}


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool["type"] != "function":
        raise DataError(f"The tool {tool['type']!r} is not supported. Offer functions only.")
    function = {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
    return {"type": "function", "function": function}


def _head(reply: AgentReply, status: str) -> dict[str, Any]:
    cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
    return {
        "id": f"resp_{reply.number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": status,
        "model": MODEL,
        "error": None,
        "incomplete_details": cut,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "temperature": None,
        "top_p": None,
    }


def _items(reply: AgentReply) -> list[dict[str, Any]]:
    choice, done = reply.choices[0], "completed" if reply.choices[0].finish_reason != "length" else "incomplete"
    written = choice.written
    items: list[dict[str, Any]] = []
    if written.thought:
        summary = [{"type": "summary_text", "text": written.thought}]
        items.append({"id": f"rs_{reply.number}", "type": "reasoning", "summary": summary})
    if written.text or not written.calls:
        content = [{"type": "output_text", "text": written.text, "annotations": [], "logprobs": []}]
        message = {"id": f"msg_{reply.number}", "type": "message", "role": "assistant"}
        items.append({**message, "status": done, "content": content})
    for number, call in enumerate(written.calls):
        identifier = call_id(reply, 0, number)
        named = {"id": f"fc_{identifier}", "type": "function_call", "call_id": identifier, "name": call.name}
        items.append({**named, "arguments": arguments_of(call), "status": done})
    return items
