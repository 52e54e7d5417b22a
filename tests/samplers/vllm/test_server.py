"""vLLM's servers as a sampler, against a scripted server: what is sent and believed, and what fails how."""

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import httpx2
import pytest
from tests.doubles.engines import Failure, ScriptedVLLM
from tests.doubles.scripted import ScriptedSampler

from evoseek.errors import ConfigError, SamplerError
from evoseek.models.load import load_policy
from evoseek.samplers.vllm.sampler import VLLMSampler
from evoseek.samplers.vllm.server import Link, Weights
from evoseek.types import Completion, SampleRequest, StopConditions
from evoseek.world.server import Response

POLICY = load_policy("tiny")
TOKENIZER = POLICY.tokenizer
REQUEST = SampleRequest("q1/0", 0, (5, 6, 7), 24, 1.0, StopConditions(("</search>",)), 0)


def ids(text):
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


@asynccontextmanager
async def serving(*servers, attempts=1, max_length=256, clock=time.monotonic, **settings):
    """A sampler over servers."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(server.serving()) for server in servers]
        own = VLLMSampler.Settings(name="vllm", urls=urls, **settings)
        links = [Link(url, own, attempts=attempts, wait_s=0.001, clock=clock) for url in urls]
        yield VLLMSampler(POLICY, links, max_length=max_length)


def scripted(said="<search> mayor </search>", **options):
    script = said if callable(said) else lambda request: said
    return ScriptedVLLM(ScriptedSampler(script, TOKENIZER, logprob=-0.5), **options)


def sample(server, request=REQUEST, **settings):
    async def run():
        async with serving(server, **settings) as sampler:
            return await sampler.sample(request)

    return asyncio.run(run())


def test_a_server_in_a_thread_answers_callers_without_an_event_loop():
    server = scripted()
    with server.in_thread() as url:
        assert httpx2.get(f"{url}/version", trust_env=False).json() == {"version": "0.33.0"}
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{url}/version", trust_env=False)


def test_a_turn_is_the_ids_and_logprobs_of_the_server():
    server = scripted()
    done = sample(server)
    assert done == Completion(ids("<search> mayor </search>"), (-0.5,) * len(done.token_ids), "stop", 0)
    (body,) = server.turns
    eos = TOKENIZER.eos_token_id
    assert body == {
        "model": "policy",
        "prompt": [5, 6, 7],
        "max_tokens": 24,
        "temperature": 1.0,
        "logprobs": 0,
        "return_token_ids": True,
        "stream": True,
        "stream_interval": 16,
        "stop": ["</search>"],
        "stop_token_ids": [eos],
        "ignore_eos": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "cache_salt": "0",
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }


def test_what_a_server_wrote_after_the_turns_own_end_is_cut():
    turn = ids("<search> mayor </search>")
    over = Completion((*turn, *turn[:2]), (-0.5,) * len(turn) + (-1.0, -1.0), "stop")
    done = sample(scripted(lambda request: over))
    assert done.token_ids == turn
    assert done.logprobs == (-0.5,) * len(turn)
    assert done.finish_reason == "stop"


def test_a_stop_that_is_none_is_refused():
    early = Completion(ids("<search> mayor"), (-0.5,) * len(ids("<search> mayor")), "stop")
    with pytest.raises(SamplerError, match="none of the stop strings"):
        sample(scripted(lambda request: early))


def test_a_turn_may_end_by_its_length():
    done = sample(scripted(), replace(REQUEST, max_tokens=2))
    assert (len(done.token_ids), done.finish_reason) == (2, "length")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (Failure.ERROR, "The engine is dead"),
        (Failure.DROP, "the connection failed"),
        (Failure.HANG, "had not replied"),
        (Failure.NO_JSON, "Expected response with content type 'text/event-stream'"),
        (Failure.FEWER_LOGPROBS, r"token ids with \d+ logprobs"),
        (Failure.STRANGE_ID, "the token id 1000000000"),
        (Failure.NO_LOGPROB, "the logprob None"),
        (Failure.OLD_WEIGHTS, "a sample from the weights 'policy-old' instead of 'policy'"),
        (Failure.ECHO, "the finish reason|token ids|that are not|none of the stop strings"),
        (Failure.TOO_LONG, "16 token ids, where 1 to 7 were expected"),
        (Failure.OTHER_PROMPT, "a prompt of 2 ids that are not the 3 that were sent"),
        (Failure.ABORTED, "the finish reason 'abort'"),
    ],
)
def test_no_wrong_reply_becomes_a_sample_and_a_second_attempt_may_be_right(failure, said):
    server = scripted()
    server.always = failure
    timeout = {"timeout_s": 0.2} if failure is Failure.HANG else {}
    if failure is not Failure.ECHO:  # which cannot be told from a long turn, unless it is too long
        with pytest.raises(SamplerError, match=said) as raised:
            sample(server, **timeout)
        assert server.url in str(raised.value)
    again = scripted()
    again.failures.append(failure)
    if failure is not Failure.ECHO:
        assert sample(again, attempts=2, **timeout).finish_reason == "stop"


LONG = replace(REQUEST, token_ids=(5, 6, 7), max_tokens=60)


@pytest.mark.parametrize("failure", [Failure.CUT, Failure.STALL])
def test_a_turn_that_breaks_off_is_continued_after_its_tokens_and_never_drawn_again(failure, in_no_time):
    """However often: what was drawn is kept, and an attempt that gave tokens is no failed one."""

    def script(request):
        return (*(request.token_ids[-1] + 1 + n for n in range(99)),)  # as in a count that goes on

    server = scripted(script)
    server.failures.extend([failure] * 3)

    async def run():
        async with serving(server, attempts=1, timeout_s=5.0) as sampler:
            return await sampler.sample(LONG)

    done = in_no_time(run())
    assert done.token_ids == tuple(range(8, 68))
    assert done.logprobs == (-0.5,) * 60
    given = 17 if failure is Failure.CUT else 1
    assert [len(body["prompt"]) for body in server.turns] == [3 + given * number for number in range(4)]
    assert [body["max_tokens"] for body in server.turns] == [60 - given * number for number in range(4)]


def timed(server, request, in_no_time, **settings):
    async def run():
        async with serving(server, **settings) as sampler:
            return [await sampler.sample(replace(request, turn=turn)) for turn in range(2)][-1]

    return in_no_time(run())


def test_a_turn_is_ended_by_its_time_and_keeps_what_was_written(in_no_time):
    """The first token comes at once, then 16 at a time."""
    server = scripted("mayor " * 99)
    server.token_s = 1.0
    done = timed(server, replace(LONG, max_seconds=20.0), in_no_time)
    assert (done.finish_reason, len(done.token_ids), done.seconds) == ("time", 33, 32.0)
    assert server.cancelled


class Queued(ScriptedSampler):
    async def sample(self, request):
        await asyncio.sleep(100.0)
        return await super().sample(request)


def test_the_time_of_a_turn_begins_with_its_first_token(in_no_time):
    """100 seconds in the server's queue are not the policy's own."""
    server = ScriptedVLLM(Queued(lambda request: "mayor " * 99, TOKENIZER))
    server.token_s = 1.0
    done = timed(server, replace(LONG, max_seconds=90.0), in_no_time, timeout_s=150.0)
    assert (done.finish_reason, done.seconds) == ("length", 59.0)


def test_a_stall_is_not_the_policys_own_time(in_no_time):
    """A hundred seconds a token in the second turn, of which five usual ones count."""

    class Slower(ScriptedVLLM):
        def interval_of(self, body):
            self.token_s = 1.0 if len(self.turns) == 1 else 100.0
            return super().interval_of(body)

    server = Slower(ScriptedSampler(lambda request: "mayor " * 99, TOKENIZER))
    done = timed(server, LONG, in_no_time, timeout_s=1e4)
    assert done.seconds == 59 * 5.0


def test_a_turn_takes_as_long_as_it_takes_while_tokens_come(in_no_time):
    server = scripted("mayor " * 99)
    server.token_s = 1.0
    done = timed(server, LONG, in_no_time, timeout_s=20.0)
    assert (len(done.token_ids), len(server.turns)) == (60, 2)


def test_the_prompt_in_front_of_a_turn_is_seen_by_the_length_of_the_turn():
    server = scripted()
    server.always = Failure.ECHO
    turn = len(ids("<search> mayor </search>"))
    with pytest.raises(SamplerError, match=f"{turn + 2} token ids, where 1 to {turn - 1} were expected"):
        sample(server, replace(REQUEST, max_tokens=turn))


def test_a_cancelled_turn_closes_its_connection():
    server = scripted()
    server.always = Failure.HANG

    async def run():
        async with serving(server) as sampler:
            task = asyncio.create_task(sampler.sample(REQUEST))
            while not server.turns:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            while not server.cancelled:
                await asyncio.sleep(0.001)

    asyncio.run(run())


def test_a_trajectory_stays_with_its_server_and_new_ones_leave_a_lost_one_until_it_is_back():
    first, second, now = scripted(), scripted(), [0.0]

    async def run():
        async with serving(first, second, clock=lambda: now[0]) as sampler:
            assert await _failed(sampler, "q", turns=2) == 0
            shares = len(first.turns), len(second.turns)
            assert sum(shares) == 48
            # Both turns of each at one server. How even the shares are depends on the machine's load.
            assert all(share % 2 == 0 and share >= 2 for share in shares)
            first.always = Failure.ERROR
            assert await _failed(sampler, "q") == shares[0] // 2
            assert await _failed(sampler, "later") == 0
            first.always = None
            now[0] = 31.0
            turns = len(first.turns)
            assert await _failed(sampler, "at last") == 0
            assert len(first.turns) > turns

    asyncio.run(run())


async def _failed(sampler, name, turns=1):
    """How many of 24 trajectories failed."""

    async def fails(trajectory_id):
        try:
            for turn in range(turns):
                await sampler.sample(replace(REQUEST, trajectory_id=trajectory_id, turn=turn))
        except SamplerError:
            return True
        return False

    return sum(await asyncio.gather(*(fails(f"{name}{number}/0") for number in range(24))))


def test_a_released_trajectory_is_forgotten():
    async def run():
        async with serving(scripted()) as sampler:
            await sampler.sample(REQUEST)
            sampler.release("q1/0")
            sampler.release("q1/0")
            assert not sampler._homes

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"version": "0.29.1"}, "runs vLLM 0.29.1; 0.30 or later"),
        ({"max_length": 255}, "takes sequences of up to 255 tokens, but rollout.max_total_tokens is 256"),
    ],
)
def test_a_server_that_cannot_be_used_stops_the_run(options, said):
    with pytest.raises(ConfigError, match=said):
        sample(scripted(**options))


def test_a_server_of_several_models_is_refused():
    server = scripted()
    models = [{"id": name, "parent": None, "max_model_len": 256} for name in ("policy", "qwen")]
    server.listed = lambda: Response.of_json({"object": "list", "data": models})
    with pytest.raises(ConfigError, match="expected to serve exactly one model, but it serves policy, qwen"):
        sample(server)


def test_raw_logprobs_are_refused():
    server = scripted()
    server.tempers = False
    with pytest.raises(ConfigError, match=r"reports raw logprobs.*--logprobs-mode processed_logprobs"):
        sample(server)


def test_no_more_turns_than_allowed_are_asked_for_at_once():
    server = scripted()
    server.always = Failure.HANG

    async def run():
        async with serving(server, concurrency=3) as sampler:
            names = [replace(REQUEST, trajectory_id=f"q{number}/0") for number in range(8)]
            tasks = [asyncio.create_task(sampler.sample(request)) for request in names]
            while len(server.turns) < 3:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert len(server.turns) == 3
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_a_turn_has_the_version_that_it_was_asked_of(tmp_path):
    """Although newer weights are published before the reply."""

    async def run():
        def script(request):
            sampler.replicas[0].publish(Weights(7, tmp_path))
            return "<search> mayor </search>"

        async with serving(scripted(script)) as sampler:
            return [(await sampler.sample(REQUEST)).policy_version for _ in range(2)]

    assert asyncio.run(run()) == [0, 7]


def test_all_weights_wait_for_the_turns_in_progress_also_after_another_has_failed(tmp_path):
    class Gated(ScriptedSampler):
        async def sample(self, request):
            begun.set()
            await gate.wait()
            return await super().sample(request)

    async def run():
        async with serving(server) as sampler:
            (replica,) = sampler.replicas
            replica.publish(Weights(7, tmp_path / "7"))
            long = asyncio.create_task(sampler.sample(REQUEST))
            await begun.wait()
            server.failures.append(Failure.ERROR)
            with pytest.raises(SamplerError):
                await sampler.sample(replace(REQUEST, trajectory_id="q2/0"))
            replica.publish(Weights(8, tmp_path / "8"))
            new = asyncio.create_task(sampler.sample(replace(REQUEST, trajectory_id="q3/0")))
            for _ in range(100):
                await asyncio.sleep(0.001)  # enough for what must not happen
            loaded = list(server.loaded)
            gate.set()
            return loaded, [done.policy_version for done in await asyncio.gather(long, new)]

    gate, begun = asyncio.Event(), asyncio.Event()
    server = ScriptedVLLM(Gated(lambda request: "<search> a </search>", TOKENIZER))
    assert asyncio.run(run()) == ([tmp_path / "7"], [7, 8])


def test_weights_that_are_published_while_others_are_loaded_come_with_the_next_turn(tmp_path):
    class Publishing(ScriptedVLLM):
        def load(self, directory, adapter=""):
            replica.publish(Weights(8, tmp_path / "8"))
            super().load(directory, adapter)

    server = Publishing(ScriptedSampler(lambda request: "<search> a </search>", TOKENIZER))

    async def run():
        nonlocal replica
        async with serving(server) as sampler:
            (replica,) = sampler.replicas
            replica.publish(Weights(7, tmp_path / "7"))
            return [(await sampler.sample(REQUEST)).policy_version for _ in range(2)]

    replica = None
    assert asyncio.run(run()) == [7, 8]
    assert server.loaded == [tmp_path / "7", tmp_path / "8"]
    assert [turn["cache_salt"] for turn in server.turns] == ["7", "8"]


def test_all_weights_are_exchanged_between_turns_and_an_adapter_at_once(tmp_path):
    """A turn is in progress when newer weights are published, and another trajectory asks for one."""

    class Gated(ScriptedSampler):
        async def sample(self, request):
            if not gate.is_set():
                begun.set()
                await gate.wait()
            happened.append("turn")
            return await super().sample(request)

    class Recording(ScriptedVLLM):
        def load(self, directory, adapter=""):
            happened.append(adapter or "all weights")
            super().load(directory, adapter)

    async def run(first, newer):
        async with serving(Recording(Gated(lambda request: "<search> a </search>", TOKENIZER))) as sampler:
            (replica,) = sampler.replicas
            replica.publish(first)
            old = asyncio.create_task(sampler.sample(REQUEST))
            await begun.wait()
            replica.publish(newer)
            new = asyncio.create_task(sampler.sample(replace(REQUEST, trajectory_id="q2/0")))
            for _ in range(100):
                await asyncio.sleep(0.001)  # enough for what must not happen
            gate.set()
            return [done.policy_version for done in await asyncio.gather(old, new)]

    for name in ("", "adapter"):
        gate, begun, happened = asyncio.Event(), asyncio.Event(), []
        versions = [Weights(n, tmp_path, name and f"{name}-{n}") for n in (1, 2)]
        assert asyncio.run(run(*versions)) == [1, 2]
        all_weights = ["all weights", "turn", "all weights", "turn"]
        assert happened == (["adapter-1", "adapter-2", "turn", "turn"] if name else all_weights)
