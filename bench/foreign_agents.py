"""Agents of other libraries, unchanged, over a scripted policy: do they run, and how many samples does an attempt give?

    python -m venv /tmp/agents
    /tmp/agents/bin/pip install openai "pydantic-ai-slim[openai]" langgraph langchain-openai "smolagents[openai]"
    python bench/foreign_agents.py --python /tmp/agents/bin/python [--attempts 8]

Each agent has a tool `search` and asks twice: for a search, and for the answer. The policy has a chat template with
tool calls and thinks before each turn. This file installs nothing. The other Python runs it as the agent's program.
"""

import json
import os
import sys

QUESTION = "who is the mayor of Kalo ?"
AGENTS = ("openai", "pydantic-ai", "pydantic-ai-responses", "langgraph", "smolagents")


def search(query: str) -> str:
    """Search the documents.

    Args:
        query: what to look for.
    """
    return f"{query} : Meri is the mayor of Kalo ."


def by_openai(task):
    from openai import OpenAI

    parameters = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    function = {"name": "search", "description": "Search.", "parameters": parameters}
    messages = [{"role": "user", "content": task}]
    while True:
        made = OpenAI().chat.completions.create(
            model="policy", messages=messages, tools=[{"type": "function", "function": function}]
        )
        message = made.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message)
        for call in message.tool_calls:
            found = search(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": found})


def by_pydantic_ai(task, responses=False):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

    model = (OpenAIResponsesModel if responses else OpenAIChatModel)("policy")
    return Agent(model, tools=[search]).run_sync(task).output


def by_langgraph(task):
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    agent = create_react_agent(ChatOpenAI(model="policy"), [search])
    return agent.invoke({"messages": [{"role": "user", "content": task}]})["messages"][-1].content


def by_smolagents(task):
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    key = os.environ["OPENAI_API_KEY"]
    model = OpenAIServerModel(model_id="policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=key)
    agent = ToolCallingAgent(tools=[tool(search)], model=model, max_steps=3, verbosity_level=0)
    return str(agent.run(task))


def answer(name):
    """Be the agent of this name, in the other Python."""
    with open(os.environ["EVOSEEK_TASK"], encoding="utf-8") as file:
        task = json.load(file)["question"]
    runs = {
        "openai": by_openai,
        "pydantic-ai": by_pydantic_ai,
        "pydantic-ai-responses": lambda task: by_pydantic_ai(task, responses=True),
        "langgraph": by_langgraph,
        "smolagents": by_smolagents,
    }
    print(runs[name](task))


def measure(python, attempts):
    import asyncio
    import time
    from collections import Counter
    from functools import cache
    from pathlib import Path
    from runpy import run_path

    root = Path(__file__).parents[1]
    sys.path.insert(0, str(root))
    from tests.doubles.scripted import ScriptedSampler

    from evoseek.renderers.conversation import Conversation
    from evoseek.rollout.calls import unwatched
    from evoseek.rollout.gateway.agents import Command
    from evoseek.rollout.gateway.attempts import AgentRunner, Rolled
    from evoseek.rollout.gateway.server import GATEWAY
    from evoseek.rollout.limits import Limits
    from evoseek.rollout.settings import CommandSettings
    from evoseek.types import Question

    tokenizer = run_path(str(root / "tests" / "doubles" / "made_tokenizers.py"))["MAKERS"]["qwen"]()

    def called(name, **arguments):
        call = json.dumps({"name": name, "arguments": arguments})
        return f"<think>\nI need it.\n</think>\n\n<tool_call>\n{call}\n</tool_call><|im_end|>"

    def script(request):
        seen = tokenizer.decode(list(request.token_ids))
        if "mayor of Kalo : Meri" not in seen:
            return called("search", query="mayor of Kalo")
        return called("final_answer", answer="Meri") if "final_answer" in seen else "Meri<|im_end|>"

    async def attempt_all(name):
        conversation = cache(lambda tools: Conversation(tokenizer, "auto", json.loads(tools)))
        agent = Command(CommandSettings(name="command", program=f"{python} {__file__} --as {name}"))
        runner = AgentRunner(agent, conversation, GATEWAY.open, GATEWAY.close, 2)
        sampler = ScriptedSampler(script, tokenizer, logprob=-0.5)
        limits = Limits(max_turns=8, max_total_tokens=16_000, max_tokens_per_turn=400)
        rolled = Rolled(sampler, limits, 1.0, 0)
        question = Question("q", QUESTION, ("Meri",))
        attempted = (runner.attempt(question, f"{name}/{n}", rolled, unwatched) for n in range(attempts))
        return await asyncio.gather(*attempted), sampler

    print("agent | answered | calls | samples | causes | tokens trained | not sampled | seconds")
    for name in AGENTS:
        began = time.perf_counter()
        rolled, sampler = asyncio.run(attempt_all(name))
        seconds = time.perf_counter() - began
        given = Counter(
            (tuple(r.token_ids), c.token_ids) for r, c in zip(sampler.requests, sampler.completions, strict=True)
        )
        strange = trained = 0
        for branch in (branch for one in rolled for branch in one.branches):
            before = ()
            for segment in branch.segments:
                if segment.kind == "action":
                    trained += len(segment.token_ids)
                    strange += len(segment.token_ids) * (given[before, segment.token_ids] < 1)
                    given[before, segment.token_ids] -= 1
                before += segment.token_ids
        causes = Counter(s.cause for one in rolled for s in one.segments if s.cause)
        samples = sum(len(one.branches) for one in rolled) / attempts
        calls = sum(len(one.actions) for one in rolled) / attempts
        answered = sum(one.answer == "Meri" for one in rolled)
        row = (name, f"{answered}/{attempts}", calls, samples, dict(causes), trained, strange, f"{seconds:.1f}")
        print(" | ".join(map(str, row)), flush=True)
        for failure in sorted({one.failure for one in rolled if one.failure}):
            print(f"    {failure}")


if __name__ == "__main__":
    words = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    if "--as" in words:
        answer(words["--as"])
    else:
        measure(words["--python"], int(words.get("--attempts", 8)))
