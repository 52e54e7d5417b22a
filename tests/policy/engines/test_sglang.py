"""SGLang's servers as a sampler, against a scripted server with its documented replies: what is sent and believed.

What every engine shares (retries, lost servers, cancellation) is tested with vLLM's.
"""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.doubles.engines import Failure
from tests.doubles.sglang import ScriptedSGLang

from evoseek.errors import ConfigError, SamplerError
from evoseek.http.limits import TransientError
from evoseek.policy.engines.engine import Weights
from evoseek.policy.engines.launch import Model
from evoseek.policy.engines.link import Link
from evoseek.policy.engines.sglang import SGLang, SGLangSampler
from evoseek.policy.engines.turn import Sampled, check_sampled
from evoseek.policy.load import load_policy
from evoseek.policy.scripted import ScriptedSampler
from evoseek.policy.stops import StopRules
from evoseek.types import Completion, SampleRequest, StopConditions

POLICY = load_policy("tiny")
TOKENIZER = POLICY.tokenizer
REQUEST = SampleRequest("q1/0", 0, (5, 6, 7), 24, 1.0, StopConditions(("</search>",)), 0)


def ids(text):
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


@asynccontextmanager
async def serving(server, *, attempts=1, max_length=256, **settings):
    async with server.serving() as url:
        own = SGLangSampler.Settings(name="sglang", urls=(url,), **settings)
        yield SGLangSampler(POLICY, [Link(url, own, attempts=attempts, wait_s=0.001)], max_length=max_length)


def scripted(said="<search> mayor </search>", **options):
    script = said if callable(said) else lambda request: said
    return ScriptedSGLang(ScriptedSampler(script, TOKENIZER, logprob=-0.5), **options)


def sample(server, request=REQUEST, **settings):
    async def run():
        async with serving(server, **settings) as sampler:
            return await sampler.sample(request)

    return asyncio.run(run())


def test_a_turn_is_the_ids_and_logprobs_of_the_server():
    server = scripted()
    done = sample(server)
    assert done == Completion(ids("<search> mayor </search>"), (-0.5,) * len(done.token_ids), "stop", 0)
    (body,) = server.turns
    assert body == {
        "input_ids": [5, 6, 7],
        "sampling_params": {
            "max_new_tokens": 24,
            "temperature": 1.0,
            "stop": ["</search>"],
            "stop_token_ids": [TOKENIZER.eos_token_id],
            "ignore_eos": False,  # which would switch off stop_token_ids
            "no_stop_trim": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "stream_interval": 16,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "frequency_penalty": 0.0,
            "presence_penalty": 0.0,
            "repetition_penalty": 1.0,
        },
        "return_logprob": True,
        "stream": True,
        "extra_key": "0",
    }


def test_a_turn_that_ends_by_a_token_is_a_stop_and_one_that_is_full_ends_by_length():
    mayor = ids("mayor")
    ended = Completion((*mayor, TOKENIZER.eos_token_id), (-0.5,) * (len(mayor) + 1), "stop")
    assert sample(scripted(lambda request: ended)).finish_reason == "stop"
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
        (Failure.TOO_LONG, "16 token ids, where 1 to 7 were expected"),
        (Failure.OTHER_PROMPT, "a prompt of 2 ids instead of the 3 that were sent"),
        (Failure.ABORTED, "the finish reason 'abort'"),
    ],
)
def test_no_wrong_reply_becomes_a_sample_and_a_second_attempt_may_be_right(failure, said):
    server = scripted()
    server.always = failure
    timeout = {"timeout_s": 0.2} if failure is Failure.HANG else {}
    with pytest.raises(SamplerError, match=said):
        sample(server, **timeout)
    again = scripted()
    again.failures.append(failure)
    assert sample(again, attempts=2, **timeout).finish_reason == "stop"


@pytest.mark.parametrize("bad", [False, None, 0.0, ""])
def test_what_is_no_token_id_is_none_even_if_it_is_nothing(bad):
    with pytest.raises(TransientError, match=f"the token id {bad!r}, but the policy has those from 0 to 9"):
        check_sampled(Sampled([1, bad], [-0.5, -0.5], "stop"), REQUEST, 10)


META = {
    "finish_reason": {"type": "stop", "matched": 4},
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "output_token_logprobs": [[-0.5, 8, None], [-0.25, 9, None]],
    "weight_version": "weights-3",
}


def read(ids=(8, 9), **changed):
    reply = {"text": "", "output_ids": list(ids), "meta_info": META | changed}
    return SGLang.read(reply, "policy", Weights(3, Path("weights-3")), 0)


def test_a_reply_says_which_weights_it_is_from():
    sampled = read()
    assert (sampled.token_ids, sampled.logprobs, sampled.prompt_length) == ([8, 9], [-0.5, -0.25], 3)
    assert sampled.version == sampled.expected_version == "weights-3"
    assert read(weight_version="default").version == "default"


@pytest.mark.parametrize("repeats", ["all", "logprobs", "none"])
def test_an_event_gives_its_new_tokens_whether_or_not_it_repeats_the_earlier_ones(repeats):
    """With all of them there may be some that it does not count yet."""
    triples = [[-0.5, 8, None], [-0.25, 9, None], [-0.75, 7, None]]
    ids = [8, 9, 7, 5] if repeats == "all" else [7]
    pairs = triples[2:] if repeats == "none" else triples
    meta = META | {"completion_tokens": 3, "output_token_logprobs": pairs, "finish_reason": None}
    reply = {"output_ids": ids, "meta_info": meta}
    sampled = SGLang.read(reply, "policy", Weights(3, Path("weights-3")), 2)
    assert (sampled.token_ids, sampled.logprobs, sampled.finish_reason) == ([7], [-0.75], None)


def test_what_a_turn_leaves_in_the_cache_is_found_by_turns_of_the_same_weights_alone():
    rule = StopRules(TOKENIZER, [TOKENIZER.eos_token_id]).rule(REQUEST.stop)
    weights = (None, Weights(3, Path("a/weights-3")), Weights(4, Path("a/weights-4"), "adapter-4"))
    bodies = [SGLang.body(REQUEST, rule, "policy", one) for one in weights]
    assert [body["extra_key"] for body in bodies] == ["0", "weights-3", "weights-4"]
    assert [body.get("lora_path") for body in bodies] == [None, None, "adapter-4"]


@pytest.mark.parametrize(
    "changed", [{"ids": (8, 4)}, {"output_token_logprobs": [[-0.5], [-0.25]]}, {"finish_reason": "stop"}]
)
def test_a_reply_that_disagrees_with_itself_is_none(changed):
    with pytest.raises(TransientError, match="its reply is not as SGLang's"):
        read(**changed)


def test_a_server_too_old_or_too_short_or_with_raw_logprobs_stops_the_run():
    with pytest.raises(ConfigError, match=r"runs SGLang 0\.5\.9; 0\.5\.10 or later"):
        sample(scripted(version="0.5.9"))
    assert sample(scripted(version="0.5.10")).finish_reason == "stop"
    with pytest.raises(ConfigError, match=r"takes sequences of up to 255 tokens, but rollout\.max_total_tokens is 256"):
        sample(scripted(max_length=263))  # of which SGLang leaves some unused
    raw = scripted()
    raw.tempers = False
    with pytest.raises(ConfigError, match=r"reports raw logprobs.*SGLANG_RETURN_ORIGINAL_LOGPROB"):
        sample(raw)


def test_the_longest_sequence_fits_into_the_context_of_a_server_that_the_run_starts():
    longest = replace(REQUEST, token_ids=(5,) * 10, max_tokens=246, stop=StopConditions())
    own = SGLangSampler.Settings(name="sglang")
    words = SGLang.command(own, Model("/m", 256, "float32", 0), "", 1).words
    context = int(words[words.index("--context-length") + 1])
    server = scripted(lambda request: "mayor " * 400, max_length=context)
    assert len(sample(server, longest).token_ids) == 246


def test_the_command_of_each_server_names_its_gpus_and_the_model():
    own = SGLangSampler.Settings(
        name="sglang",
        gpus=("0,1", "2,3"),
        program=("/opt/python", "-m", "sglang.launch_server"),
        arguments=("--disable-cuda-graph",),
    )
    commands = SGLangSampler.commands(own, Model("/m", 2048, "bfloat16", 12), [8000, 8001])
    assert [str(command) for command in commands.values()] == [
        f"CUDA_VISIBLE_DEVICES={gpus} /opt/python -m sglang.launch_server --model-path /m --served-model-name policy "
        f"--host 127.0.0.1 --port {port} --dtype bfloat16 --context-length 2056 --tp-size 2 "
        "--enable-lora --max-lora-rank 12 --lora-target-modules all --max-loras-per-batch 2 --disable-cuda-graph"
        for gpus, port in (("0,1", 8000), ("2,3", 8001))
    ]
