"""The gateway over HTTP, with OpenAI's own client: whole, as streams, with tools, choices and responses."""

import asyncio
import json
from functools import partial

import httpx2
import openai
import pytest
from tests.doubles.scripted import ScriptedSampler

post = partial(httpx2.post, timeout=None)  # however busy the machine is
TOOLS = [
    {"type": "function", "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object"}}}
]
CALL = '<think>\nI look.\n</think>\n\n<tool_call>\n{"name": "search", "arguments": {"query": "mayor"}}\n</tool_call>'
TEXTS = [f"{CALL}<|im_end|>", "Meri<|im_end|>"]


def client_of(client):
    return openai.OpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=2)


def streamed(chunks):
    """The message and the usage that the chunks of a stream add up to."""
    text, calls, usage = "", [], None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            calls += choice.delta.tool_calls or ()
    return text, calls, usage


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_of_openai_calls_tools_in_one_sample(qwen, stream):
    """Trap 5: the ids, logprobs and numbers of a stream are those of the whole reply."""
    counted = []

    def agent(task, client):
        api, messages = client_of(client), [{"role": "user", "content": task}]
        while True:
            options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
            made = api.chat.completions.create(model="any", messages=messages, tools=TOOLS, **options)
            if stream:
                text, calls, usage = streamed(made)
            else:
                text, calls, usage = made.choices[0].message.content, made.choices[0].message.tool_calls, made.usage
            counted.append(usage.completion_tokens)
            if not calls:
                return text
            (call,) = calls
            function = {"name": call.function.name, "arguments": call.function.arguments}
            messages += [
                {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": call.id, "content": "Kalo : Meri"},
            ]

    trajectory = qwen.run(agent, TEXTS)
    assert (trajectory.answer, trajectory.failure) == ("Meri", None)
    (branch,) = trajectory.branches
    actions = [segment for segment in branch.segments if segment.kind == "action"]
    assert counted == [len(action.token_ids) for action in actions] == [len(action.logprobs) for action in actions]


def test_choices_logprobs_ids_and_usage(qwen):
    def agent(task, client):
        return json.dumps(
            post(
                f"{client.base_url}/chat/completions",
                json={
                    "messages": [{"role": "user", "content": [{"type": "text", "text": task}]}],
                    "n": 2,
                    "logprobs": True,
                    "return_token_ids": True,
                },
            ).json()
        )

    trajectory = qwen.run(agent, ["Meri<|im_end|>", "Kalo it is<|im_end|>"])
    reply = json.loads(trajectory.answer)
    assert [choice["message"]["content"] for choice in reply["choices"]] == ["Meri", "Kalo it is"]
    for choice, branch in zip(reply["choices"], trajectory.branches, strict=True):
        prompt, action = branch.segments
        assert reply["prompt_token_ids"] == list(prompt.token_ids)
        assert choice["token_ids"] == list(action.token_ids)
        assert [row["logprob"] for row in choice["logprobs"]["content"]] == list(action.logprobs)
    written = sum(len(choice["token_ids"]) for choice in reply["choices"])
    assert reply["usage"]["completion_tokens"] == written
    assert reply["usage"]["total_tokens"] == written + len(reply["prompt_token_ids"])


@pytest.mark.parametrize("stream", [False, True])
def test_responses_are_the_same_conversation(qwen, stream):
    def agent(task, client):
        api, given = client_of(client), [{"role": "user", "content": task}]
        tools = [{"type": "function", **TOOLS[0]["function"]}]
        for _ in range(2):
            if stream:
                events = [
                    *api.responses.create(model="any", instructions="Answer.", input=given, tools=tools, stream=True)
                ]
                made = events[-1].response
                assert [event.sequence_number for event in events] == [*range(len(events))]
                assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
            else:
                made = api.responses.create(model="any", instructions="Answer.", input=given, tools=tools)
            given += [item.model_dump(exclude_none=True) for item in made.output]
            calls = [item for item in made.output if item.type == "function_call"]
            if not calls:
                return made.output_text
            given.append({"type": "function_call_output", "call_id": calls[0].call_id, "output": "Kalo : Meri"})
        return None

    trajectory = qwen.run(agent, TEXTS)
    assert (trajectory.answer, trajectory.failure) == ("Meri", None)
    (branch,) = trajectory.branches
    assert "Answer." in qwen.tokenizer.decode(branch.segments[0].token_ids)


@pytest.mark.parametrize(
    ("path", "body", "word"),
    [
        ("chat/completions", b"{", "not JSON"),
        ("chat/completions", b'{"messages": []}', "messages"),
        ("chat/completions", b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "images"),
        ("chat/completions", b'{"messages": [{"role": "bot", "content": "x"}]}', "role"),
        ("chat/completions", b'{"messages": [{"role": "user", "content": ""}], "top_logprobs": 3}', "top_logprobs"),
        ("responses", b'{"input": "x", "previous_response_id": "resp_1"}', "whole input"),
        ("responses", b'{"input": "x", "tools": [{"type": "web_search"}]}', "web_search"),
        ("responses", b'{"input": [{"type": "item_reference", "id": "x"}]}', "item_reference"),
        ("responses", b"[]", "not valid"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_the_reason(qwen, path, body, word):
    def agent(task, client):
        reply = post(f"{client.base_url}/{path}", content=body)
        assert (reply.status_code, reply.headers["x-should-retry"]) == (400, "false")
        return reply.json()["error"]["message"]

    trajectory = qwen.run(agent, [])
    assert word in (trajectory.answer or trajectory.failure)
    assert not trajectory.segments


def test_the_key_may_stand_in_the_header_and_the_model_is_listed(qwen):
    def agent(task, client):
        start = client.base_url.replace(f"/{client.api_key}", "")
        api = openai.OpenAI(base_url=start, api_key=client.api_key)
        (model,) = api.models.list().data
        messages = [{"role": "user", "content": task}]
        return api.chat.completions.create(model=model.id, messages=messages).choices[0].message.content

    assert qwen.run(agent, ["Meri<|im_end|>"]).answer == "Meri"


def test_a_client_does_not_repeat_a_refused_call(qwen):
    """OpenAI's client repeats 409, 429 and 5xx twice: here it must not, and raises the reason."""

    def agent(task, client):
        messages, api = [{"role": "user", "content": task}], client_of(client)
        api.chat.completions.create(model="any", messages=messages)
        try:
            api.chat.completions.create(model="any", messages=messages)
        except openai.BadRequestError as error:
            return error.code

    assert qwen.run(agent, ["Meri<|im_end|>"], max_turns=1).answer == "call_limit"


def test_many_attempts_together_keep_their_calls_apart(qwen):
    async def agent(task, client):
        messages, said = [{"role": "user", "content": task}], set()
        async with httpx2.AsyncClient(base_url=client.base_url, timeout=None) as http:
            for _ in range(3):
                reply = (await http.post("chat/completions", json={"messages": messages})).json()
                messages += [reply["choices"][0]["message"], {"role": "user", "content": "more"}]
                said.add(messages[-2]["content"])
        return " ".join(said)

    async def attempt_all():
        return await asyncio.gather(*(qwen.attempt(agent, id=f"k/{n}") for n in range(64)))

    qwen.sampler = ScriptedSampler(lambda request: f"{request.trajectory_id}<|im_end|>", qwen.tokenizer)
    rolled = asyncio.run(attempt_all())
    assert [one.failure or one.answer for one in rolled] == [f"k/{n}" for n in range(64)]
    assert {len(one.branches) for one in rolled} == {1}
    given = {request.token_ids for request in qwen.sampler.requests}
    before = [one.token_ids[: -len(one.segments[-1].token_ids)] for one in rolled]
    assert given.issuperset(before)
    assert sorted(qwen.sampler.released) == sorted(f"k/{n}" for n in range(64))


@pytest.mark.parametrize("function", [{"name": "a", "parameters": 7}, {"name": "a", "parameters": {"properties": 7}}])
def test_tools_that_cannot_be_described_are_refused(tagged, function):
    """With 400: a client repeats 500, and the reason would be lost."""

    def agent(task, client):
        body = {"messages": [{"role": "user", "content": task}], "tools": [{"type": "function", "function": function}]}
        reply = post(f"{client.base_url}/chat/completions", json=body)
        assert reply.status_code == 400
        return reply.json()["error"]["message"]

    assert "cannot be read" in tagged.run(agent, []).answer
