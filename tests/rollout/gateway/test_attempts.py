"""The traps of training on calls of other programs: each was a bug of a published trainer."""

import asyncio
import json
import threading
from functools import partial

import httpx2
import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.errors import ConfigError, SamplerError
from evoseek.rollout.gateway.attempts import CallRefusedError
from evoseek.rollout.gateway.server import GATEWAY
from evoseek.types import Completion, StopReason

post = partial(httpx2.post, timeout=None)  # however busy the machine is
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "mayor",   "k": 3}}\n</tool_call><|im_end|>'
THOUGHT = f"<think>\nI look it up.\n</think>\n\n{CALL}"
ANSWER = "<think>\nFound.\n</think>\n\nMeri<|im_end|>"


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def branches_of(trajectory, sampler):
    """The branches: in each, what stands before an action is what the sampler was given, and every delivered completion
    is an action exactly once, with its own ids and logprobs."""
    given = {(tuple(r.token_ids), c.token_ids): c for r, c in zip(sampler.requests, sampler.completions, strict=True)}
    for branch in trajectory.branches:
        before = ()
        for segment in branch.segments:
            if segment.kind == "action":
                assert given.pop((before, segment.token_ids)).logprobs == segment.logprobs
            before += segment.token_ids
    assert not given
    return trajectory.branches


def causes_of(trajectory):
    return [segment.cause for segment in trajectory.segments if segment.kind == "prompt"][1:]


async def respaced(task, client):
    """Four tool turns: it drops the thoughts, spaces the JSON of calls its own way, and leaves out null content."""
    messages = [user(task)]
    while True:
        reply = await client.chat(messages=messages, tools=TOOLS)
        message = reply["choices"][0]["message"]
        if "tool_calls" not in message:
            return message["content"]
        for call in message["tool_calls"]:
            given = json.loads(call["function"]["arguments"])
            call["function"]["arguments"] = json.dumps(dict(sorted(given.items())), indent=2)
        messages.append({"role": "assistant", "tool_calls": message["tool_calls"]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "Kalo : Meri <|im_end|>"})


@pytest.mark.parametrize("name", ["qwen", "qwen_forgetful", "smollm2"])
def test_trap_1_a_history_that_came_back_in_other_clothes_is_one_sample(qwen, made, name):
    qwen.tokenizer = made(name)
    trajectory = qwen.run(respaced, [THOUGHT] * 4 + [ANSWER])
    (branch,) = branches_of(trajectory, qwen.sampler)
    assert (trajectory.answer, trajectory.stop_reason) == ("Meri", StopReason.ANSWERED)
    assert [segment.kind for segment in branch.segments] == ["prompt", "action", *["observation", "action"] * 4]
    assert qwen.tokenizer.decode(branch.segments[1].token_ids) == THOUGHT
    end = qwen.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert all(segment.token_ids.count(end) == 1 for segment in branch.segments if segment.kind == "observation")


def test_trap_2_each_delivered_token_trains_once_and_an_undelivered_one_never(qwen):
    async def agent(task, client):
        first = await client.chat(messages=[user(task)])
        history = [user(task), assistant(first["choices"][0]["message"]["content"])]
        await client.chat(messages=[*history, user("more")])
        await client.chat(messages=[*history, user("others")])  # goes back
        await client.chat(messages=[user("a title")], n=2)
        return "Meri"

    trajectory = qwen.run(agent, lambda request: f"reply {request.turn}<|im_end|>")
    branches = branches_of(trajectory, qwen.sampler)
    assert causes_of(trajectory) == ["fork", "other", "again"]
    assert [branch.num_action_tokens > 0 for branch in branches] == [True] * 4
    assert len(trajectory.actions) == 5


@pytest.mark.parametrize(
    ("edit", "cause"),
    [
        (lambda m, text: [m, assistant(text.partition("</search>")[0])], "reply"),
        (lambda m, text: [m, assistant(text.rpartition("</think>")[2].strip())], "thought"),
        (lambda m, text: [m, assistant(text.replace(" ", "  "))], "white_space"),
        (lambda m, text: [m, assistant("In short: a search.")], "reply"),
        (lambda m, text: [m, assistant(text), user("more"), assistant("I never said this.")], "inserted"),
        (lambda m, text: [{"role": "system", "content": "It is noon."}, m, assistant(text)], "system"),
        (lambda m, text: [user("another task"), assistant(text)], "other"),
        (lambda m, text: [m], "left_out"),
    ],
)
def test_trap_3_an_edited_history_is_a_sample_with_the_edited_context(qwen, edit, cause):
    sent = "<think>\nI look.\n</think>\n\nI <search> mayor </search> and more"

    async def agent(task, client):
        reply = await client.chat(messages=[user(task)])
        text = reply["choices"][0]["message"]["content"]
        assert text == sent
        await client.chat(messages=[*edit(user(task), text), user("go on")])
        return "Meri"

    trajectory = qwen.run(agent, [f"{sent}<|im_end|>", ANSWER])
    _, second = branches_of(trajectory, qwen.sampler)
    assert causes_of(trajectory) == [cause]
    prompt = qwen.tokenizer.decode(second.segments[0].token_ids)
    for message in edit(user("who is the mayor of Kalo ?"), sent):
        assert message["content"] in prompt


def test_trap_3_another_list_of_tools_is_another_context(qwen):
    async def agent(task, client):
        reply = await client.chat(messages=[user(task)], tools=TOOLS)
        text = reply["choices"][0]["message"]["content"]
        await client.chat(messages=[user(task), assistant(text), user("more")])
        return "Meri"

    trajectory = qwen.run(agent, ["Meri<|im_end|>"] * 2)
    assert causes_of(trajectory) == ["tools"]


class Mismatched(ScriptedSampler):
    """Loses a logprob, as servers do in streams."""

    async def sample(self, request):
        done = await super().sample(request)
        return Completion(done.token_ids, done.logprobs[1:], "stop")


def test_trap_5_ids_without_their_logprobs_make_the_attempt_invalid(qwen):
    async def agent(task, client):
        try:
            await client.chat(messages=[user(task)])
        except CallRefusedError:
            return "Meri"  # however it goes on

    trajectory = qwen.run(agent, [], sampler=Mismatched(lambda _: "Meri", qwen.tokenizer))
    assert (trajectory.stop_reason, trajectory.answer) == (StopReason.SAMPLER_FAILED, None)
    assert "Expected one for each id" in trajectory.failure


def test_trap_6_a_retry_gets_the_first_reply_and_equal_calls_are_calls(qwen):
    def agent(task, client):
        body = {"messages": [user(task)]}
        with httpx2.Client(base_url=client.base_url, timeout=None) as http:
            first = http.post("chat/completions", json=body).json()
            again = http.post("chat/completions", json=body, headers={"x-stainless-retry-count": "1"}).json()
            others = [http.post("chat/completions", json=body).json() for _ in range(4)]
        texts = [one["choices"][0]["message"]["content"] for one in (first, again, *others)]
        return " ".join(texts)

    trajectory = qwen.run(agent, lambda request: f"reply {request.turn}<|im_end|>")
    assert trajectory.answer == "reply 0 reply 0 reply 1 reply 2 reply 3 reply 4"
    assert len(branches_of(trajectory, qwen.sampler)) == 5
    assert causes_of(trajectory) == ["again"] * 4


def test_trap_7_a_refusal_is_not_repeated_and_not_recorded(qwen):
    replies = []

    def agent(task, client):
        for _ in range(3):
            reply = post(f"{client.base_url}/chat/completions", json={"messages": [user(task)]})
            replies.append(reply)
        replies.append(client.base_url)

    trajectory = qwen.run(agent, [ANSWER], max_turns=1)
    late = post(f"{replies.pop()}/chat/completions", json={"messages": [user("late")]})
    assert [reply.status_code for reply in (*replies, late)] == [200, 400, 400, 400]
    assert all(reply.headers["x-should-retry"] == "false" for reply in (*replies[1:], late))
    assert replies[1].json()["error"]["code"] == "call_limit"
    assert len(qwen.sampler.requests) == len(trajectory.actions) == 1
    assert (trajectory.stop_reason, trajectory.failure) == (StopReason.MAX_TURNS, None)


def test_trap_8_an_outage_is_no_reward(qwen):
    def down(request):
        raise SamplerError("the server is down")

    async def agent(task, client):
        return (await client.chat(messages=[user(task)]))["choices"]

    trajectory = qwen.run(agent, down)
    assert trajectory.stop_reason is StopReason.SAMPLER_FAILED
    assert trajectory.stop_reason.is_failure


class Updated(ScriptedSampler):
    """Gets new weights during its second turn, which the server then cuts."""

    async def sample(self, request):
        done = await super().sample(request)
        if request.turn != 1:
            return done
        began, self.policy_version = self.policy_version, 7
        return Completion(done.token_ids, done.logprobs, "length", began, 0.0)


def test_trap_9_each_call_has_the_weights_at_its_start_and_end(qwen):
    reasons = []

    async def agent(task, client):
        for number in range(3):
            reply = await client.chat(messages=[user(f"{task} {number}")])
            reasons.append(reply["choices"][0]["finish_reason"])
        return "Meri"

    sampler = Updated(lambda _: "Meri<|im_end|>", qwen.tokenizer, policy_version=3)
    trajectory = qwen.run(agent, [], sampler=sampler)
    actions = [segment for segment in trajectory.segments if segment.kind == "action"]
    assert trajectory.policy_version == 3
    assert [(action.policy_version, action.ended_version) for action in actions] == [(None, None), (None, 7), (7, None)]
    assert reasons == ["stop", "length", "stop"]


@pytest.mark.parametrize(
    ("trained", "kept"), [("all", ["first", "title", "last", "other"]), ("last", ["first", "last"])]
)
def test_trap_10_dead_ends_are_trained_on_only_if_wanted(qwen, trained, kept):
    texts = ["first", "title", "other", "last"]

    async def agent(task, client):
        await client.chat(messages=[user(task)])
        await client.chat(messages=[user("a title for this")])
        await client.chat(messages=[user(task), assistant("first"), user("check")])
        await client.chat(messages=[user(task), assistant("first"), user("then")])
        return "Meri"

    trajectory = qwen.run(agent, [f"{text}<|im_end|>" for text in texts], trained=trained)
    said = [action.text.removesuffix("<|im_end|>") for action in trajectory.actions]
    assert sorted(said) == sorted(kept)
    assert len(trajectory.branches) == (3 if trained == "all" else 1)


@pytest.mark.parametrize("back", ["the ma", "the mayor"])
def test_trap_11_a_stop_inside_a_token_keeps_the_token(tagged, back):
    """The text ends before the stop; a client sends it back so, or puts the stop back."""

    async def agent(task, client):
        reply = await client.chat(messages=[user(task)], stop="yor")
        assert reply["choices"][0]["message"]["content"] == "the ma"
        await client.chat(messages=[user(task), assistant(back), user("kalo")])
        return "Meri"

    trajectory = tagged.run(agent, ["the mayor", "meri"])
    (branch,) = branches_of(trajectory, tagged.sampler)
    assert tagged.tokenizer.decode(branch.segments[1].token_ids) == "the mayor"


def test_trap_12_the_server_answers_while_the_policy_computes(qwen):
    """The script asks for /health where it blocks the loop that samples."""

    def agent(task, client):
        address = client.base_url.partition("/v1")[0].rpartition("/")[0]
        body = {"messages": [user(address)]}
        return post(f"{client.base_url}/chat/completions", json=body).json()["choices"][0]["message"]["content"]

    def script(request):
        address = GATEWAY.open(type("Nobody", (), {"key": "nobody"})())
        return httpx2.get(f"{address}/health", timeout=None).json()["status"] + "<|im_end|>"

    assert qwen.run(agent, script).answer == "ok"


def test_trap_13_the_settings_of_the_run_win(qwen):
    async def agent(task, client):
        await client.chat(messages=[user(task)], temperature=0.1, top_p=0.2, seed=5, presence_penalty=1, max_tokens=7)
        return "Meri"

    qwen.run(agent, [ANSWER])
    (request,) = qwen.sampler.requests
    assert (request.temperature, request.seed, request.max_tokens) == (1.0, 0, 7)
    assert (request.trajectory_id, request.turn) == ("k/0", 0)


def test_what_the_policy_causes_is_scored_and_what_the_agent_causes_is_not(qwen):
    async def silent(task, client):
        return None

    async def wordless(task, client):
        await client.chat(messages=[user(task)])

    async def crashing(task, client):
        await client.chat(messages=[user(task)])
        raise ZeroDivisionError("division by zero")

    async def long(task, client):
        messages = [user(task)]
        while True:
            reply = await client.chat(messages=messages)
            messages += [assistant(reply["choices"][0]["message"]["content"]), user("more " * 20)]

    async def wrong(task, client):
        return 42

    ends = {
        agent.__name__: qwen.run(agent, ["Meri<|im_end|>"] * 9, max_total_tokens=120)
        for agent in (silent, wordless, crashing, long, wrong)
    }
    assert {name: one.stop_reason for name, one in ends.items()} == {
        "silent": StopReason.TOOL_FAILED,
        "wordless": StopReason.MALFORMED,
        "crashing": StopReason.TOOL_FAILED,
        "long": StopReason.MAX_TOKENS,
        "wrong": StopReason.TOOL_FAILED,
    }
    assert ends["crashing"].failure == "The agent failed: ZeroDivisionError: division by zero"
    assert "int" in ends["wrong"].failure


def test_a_fault_of_the_sampler_ends_the_run_as_in_the_own_loop(qwen):
    """Here settings that cannot work: a limit of the policy's own time with a sampler that does not tell it."""

    class Untimed(ScriptedSampler):
        async def sample(self, request):
            return Completion((1,), (-0.5,), "stop")

    async def agent(task, client):
        await client.chat(messages=[user(task)])

    with pytest.raises(ConfigError, match="deadline_s"):
        qwen.run(agent, [], sampler=Untimed(lambda _: "", qwen.tokenizer), deadline_s=5.0, wait_s=5.0)


class TestHostile:
    def test_half_a_character_is_text(self, qwen):
        async def agent(task, client):
            reply = await client.chat(messages=[user(f"{task} \ud83d")])
            return reply["choices"][0]["message"]["content"]

        assert qwen.run(agent, ["Meri<|im_end|>"]).answer == "Meri"

    def test_a_prompt_of_five_megabytes_is_refused_before_it_is_read(self, qwen):
        async def agent(task, client):
            await client.chat(messages=[user("x " * 2_500_000)])

        trajectory = qwen.run(agent, [])
        assert trajectory.stop_reason is StopReason.TOOL_FAILED
        assert "rollout.max_total_tokens" in trajectory.failure
        assert not trajectory.segments

    def test_many_branches_end_at_the_limit_of_calls(self, qwen):
        async def agent(task, client):
            for number in range(10_000):
                await client.chat(messages=[user(f"{number}")])

        trajectory = qwen.run(agent, lambda _: "Meri<|im_end|>", max_turns=300)
        assert (trajectory.stop_reason, len(trajectory.branches)) == (StopReason.MAX_TURNS, 300)
        assert branches_of(trajectory, qwen.sampler)

    @pytest.mark.parametrize("blocking", [False, True])
    def test_one_that_never_returns_is_invalid_and_its_later_calls_are_refused(self, qwen, blocking):
        told, release = [], threading.Event()

        def blocks(task, client):
            address = client.base_url
            release.wait(20)
            told.append(post(f"{address}/chat/completions", json={"messages": [user(task)]}).status_code)

        async def waits(task, client):
            await client.chat(messages=[user(task)])
            await asyncio.Event().wait()

        trajectory = qwen.run(blocks if blocking else waits, [ANSWER], wait_s=0.2)
        release.set()
        assert trajectory.stop_reason is StopReason.DEADLINE
        assert "rollout.wait_s" in trajectory.failure
        if blocking:
            while not told:
                pass
            assert told == [400]
        assert qwen.sampler.released == ["k/0"]

    def test_the_key_of_another_attempt_is_refused(self, qwen):
        keys, statuses, ready = [], [], asyncio.Event()

        async def victim(task, client):
            keys.extend((client.base_url, client.api_key))
            await ready.wait()
            return "Meri"

        async def thief(task, client):
            while not keys:
                await asyncio.sleep(0)
            async with httpx2.AsyncClient(timeout=None, headers={"Authorization": f"Bearer {keys[1]}"}) as http:
                for address in (client.base_url, f"{client.base_url.rpartition('/')[0]}x/v1"):
                    body = {"messages": [user(task)]}
                    statuses.append((await http.post(f"{address}/chat/completions", json=body)).status_code)
            ready.set()
            return "Meri"

        async def both():
            agents = (victim, thief)
            return await asyncio.gather(*(qwen.attempt(agent, id=f"k/{n}") for n, agent in enumerate(agents)))

        qwen.sampler = ScriptedSampler(lambda _: ANSWER, qwen.tokenizer)
        ends = asyncio.run(both())
        assert statuses == [400, 400]
        assert not any(one.segments for one in ends)


def test_an_agent_that_cancels_itself_has_failed_and_the_run_goes_on(qwen):
    async def agent(task, client):
        raise asyncio.CancelledError("a scope of its own")

    trajectory = qwen.run(agent, [])
    assert trajectory.stop_reason is StopReason.TOOL_FAILED
    assert "CancelledError" in trajectory.failure


def test_a_function_in_a_thread_may_chat_in_a_loop_of_its_own(qwen):
    """The policy is sampled in the attempt's loop all the same, whose futures the sampler waits for."""
    loops = []

    class Watched(ScriptedSampler):
        async def sample(self, request):
            loops.append(asyncio.get_running_loop())
            return await super().sample(request)

    def agent(task, client):
        loops.append(client.attempt.loop)
        reply = asyncio.run(client.chat(messages=[user(task)]))
        return reply["choices"][0]["message"]["content"]

    trajectory = qwen.run(agent, [], sampler=Watched(lambda _: "Meri<|im_end|>", qwen.tokenizer))
    assert (trajectory.answer, len(trajectory.branches)) == ("Meri", 1)
    assert loops[0] is loops[1]


def test_a_fault_ends_the_run_even_if_the_agent_then_hangs_and_whatever_its_type(qwen):
    """A TimeoutError of the sampler is not the agent's limit of time."""

    class Faulty(ScriptedSampler):
        async def sample(self, request):
            raise TimeoutError("of the sampler")

    async def agent(task, client):
        with pytest.raises(CallRefusedError):
            await client.chat(messages=[user(task)])
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="of the sampler"):
        qwen.run(agent, [], sampler=Faulty(lambda _: "", qwen.tokenizer), wait_s=0.2)
