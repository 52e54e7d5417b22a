import asyncio

import pytest
from tests.doubles.scripted import ScriptedSampler

from evoseek.errors import SamplerError
from evoseek.protocols import Sampler
from evoseek.types import Completion, SampleRequest, StopConditions


def request(turn=0, max_tokens=100, name="q/0"):
    return SampleRequest(name, turn, (1, 2), max_tokens, 1.0, StopConditions(), 0)


def test_says_each_trajectorys_texts_and_keeps_what_was_asked(made):
    sampler = ScriptedSampler({"q/0": ["the mayor", "of Kalo"]}, made("qwen"), logprob=-0.5, policy_version=3)
    assert isinstance(sampler, Sampler)
    second = asyncio.run(sampler.sample(request(turn=1)))
    assert made("qwen").decode(second.token_ids) == "of Kalo"
    assert second.logprobs == (-0.5,) * len(second.token_ids)
    assert (second.finish_reason, second.policy_version) == ("stop", 3)
    assert (sampler.requests, sampler.completions) == ([request(turn=1)], [second])
    with pytest.raises(SamplerError, match="no turn 2"):
        asyncio.run(sampler.sample(request(turn=2)))


def test_a_function_may_give_ids_or_a_completion_and_long_ones_are_cut(made):
    sampler = ScriptedSampler(lambda asked: [7, 8, 9], made("qwen"))
    assert asyncio.run(sampler.sample(request(max_tokens=2))) == Completion((7, 8), (0.0, 0.0), "length")
    whole = Completion((4,), (-1.0,), "stop")
    assert asyncio.run(ScriptedSampler(lambda asked: whole, made("qwen")).sample(request())) is whole
