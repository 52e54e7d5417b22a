"""Agents of other people: the package's own turn loop over the gateway, and hostile ones."""

import os
from functools import cache
from pathlib import Path

import httpx2

from evoseek.renderers.tags import SEARCH, read_action
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.tools import SearchTool
from evoseek.search.lexical import LexicalIndex
from evoseek.types import ToolCall

INDEX, OVER_HTTP = "EVOSEEK_TEST_INDEX", "EVOSEEK_TEST_HTTP"
STOP = ["</search>", "</answer>"]


@cache
def tool(index):
    return SearchTool(LexicalIndex.open(Path(index)), 3, template=load_prompts("tiny")["observation"])


async def ask(client, **body):
    if not os.environ.get(OVER_HTTP):
        return await client.chat(**body)
    async with httpx2.AsyncClient(timeout=None) as http:
        reply = await http.post(f"{client.base_url}/chat/completions", json=body)
        return reply.json()


async def own_loop(task, client):
    """The turn loop of the tag format, as `rollout.run` has it, for the tiny policy."""
    messages, found = [{"role": "user", "content": f"solve : {task}"}], 0
    while True:
        reply = await ask(client, messages=messages, stop=STOP, include_stop_str_in_output=True)
        if "error" in reply:
            return None
        text = reply["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": text})
        action = read_action(text, SEARCH)
        if action.answer is not None:
            return action.answer or None
        if not action.tool_calls:
            return None
        searching = tool(os.environ[INDEX])
        result = await searching(ToolCall("search", action.tool_calls[0].arguments))
        result = searching.numbered(result, found + 1) if result.passages else result
        found += len(result.passages)
        messages.append({"role": "tool", "content": result.text})


async def rambling(task, client):
    """Asks in a new conversation each time, until it is refused."""
    for number in range(1_000):
        await client.chat(messages=[{"role": "user", "content": f"{number} {task}"}])


def letters(trajectory):
    """A reward that differs between most answers."""
    return len(trajectory.answer or "") % 7 / 7
