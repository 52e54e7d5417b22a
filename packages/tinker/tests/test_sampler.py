import asyncio

import pytest

from evoseek.errors import ConfigError, PolicyError, SamplerError
from evoseek.models.load import load_policy
from evoseek.models.policy import SamplerContext
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.types import SampleRequest, StopConditions
from evoseek_tinker.policy import TinkerPolicy, load_shell
from evoseek_tinker.sampler import TinkerSampler
from evoseek_tinker.sdk import NewModel, RemoteModel
from evoseek_tinker.testing import Answer, ScriptedSampling, ScriptedTinker

STOP = StopConditions(("</search>", "</answer>"))


def sampler(service=None, **options):
    remote = RemoteModel(service or ScriptedTinker(), NewModel("tiny", 2, 0), api_key="tml-secret")
    policy = TinkerPolicy.over(remote, "tiny", "policy")
    return TinkerSampler.build(TinkerSampler.Settings(**options), SamplerContext(policy, 256))


def request(text="what is kiwi ?", **options):
    ids = load_shell("tiny").tokenizer.encode(text, add_special_tokens=False)
    given = {"max_tokens": 48, "temperature": 1.0, "stop": STOP, "seed": 3, **options}
    return SampleRequest("q/0", 0, tuple(ids), **given)


def test_a_turn_is_as_long_and_as_likely_as_the_embedded_sampler_has_it():
    ours = asyncio.run(sampler().sample(request(temperature=0.0)))
    theirs = asyncio.run(TorchSampler(load_policy("tiny")).sample(request(temperature=0.0)))
    assert (ours.token_ids, ours.finish_reason) == (theirs.token_ids, theirs.finish_reason)
    assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    assert (ours.policy_version, ours.seconds) == (0, None)


def test_the_same_turn_gets_the_same_seed_and_another_one_another():
    service = ScriptedTinker()
    one = sampler(service)
    for turn in (request(), request(), request(seed=4)):
        asyncio.run(one.sample(turn))
    first, again, other = (sample.seed for sample in service.sampled)
    assert first == again != other
    assert 0 <= first < 2**31


def test_stop_tokens_are_sent_where_there_are_no_strings():
    service = ScriptedTinker()
    asyncio.run(sampler(service).sample(request(stop=StopConditions((), (7,)))))
    assert service.sampled[0].stop == [2, 7]  # the end of the text, too


class Replying(ScriptedTinker):
    """Samples what it is told to."""

    def __init__(self, **reply):
        super().__init__()
        self.reply = reply

    def ServiceClient(self, **options):
        service = super().ServiceClient(**options)
        outer = self

        class Sampling(ScriptedSampling):
            async def sample_async(self, **_):
                return Answer(sequences=[Answer(**outer.reply)])

        class Training:
            def save_weights_and_get_sampling_client(self):
                return Sampling(outer, load_policy("tiny"))

        return type("Service", (), {"create_lora_training_client": lambda *_, **__: Training(), "tinker": service})()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"tokens": [5, 6], "logprobs": [-1.0], "stop_reason": "stop"}, "2 token ids with 1 logprobs"),
        ({"tokens": [], "logprobs": [], "stop_reason": "stop"}, "0 token ids, where 1 to 48"),
        ({"tokens": [400], "logprobs": [-1.0], "stop_reason": "stop"}, "the token id 400"),
        ({"tokens": [5], "logprobs": [float("nan")], "stop_reason": "stop"}, "the logprob nan"),
        ({"tokens": [5] * 49, "logprobs": [-1.0] * 49, "stop_reason": "length"}, "49 token ids"),
        ({"tokens": [5], "logprobs": [-1.0], "stop_reason": "length"}, "1 of 48 tokens, ended by length"),
        ({"tokens": [5], "logprobs": [-1.0], "stop_reason": "stop"}, "none of the stop strings and stop tokens"),
        ({"tokens": [5], "logprobs": [-1.0], "stop_reason": "abort"}, "the finish reason 'abort'"),
    ],
)
def test_a_reply_that_cannot_be_the_sample_is_a_failure(reply, said):
    with pytest.raises(SamplerError, match=said):
        asyncio.run(sampler(Replying(**reply)).sample(request()))


def test_what_was_written_after_the_end_of_a_turn_is_cut():
    tokenizer = load_shell("tiny").tokenizer
    ids = tokenizer.encode("<answer> kiwi </answer> kiwi kiwi", add_special_tokens=False)
    written = {"tokens": ids, "logprobs": [-0.5] * len(ids), "stop_reason": "length"}
    completion = asyncio.run(sampler(Replying(**written)).sample(request(max_tokens=len(ids))))
    assert tokenizer.decode(completion.token_ids).endswith("</answer>")
    assert (completion.finish_reason, len(completion.logprobs)) == ("stop", len(completion.token_ids))


def test_every_version_is_sampled_with_the_weights_of_then():
    service = ScriptedTinker()
    one = sampler(service)
    one.update_weights(0)
    one.update_weights(0)
    assert service.calls.count("save_weights_and_get_sampling_client") == 1
    one.update_weights(4)
    assert service.calls.count("save_weights_and_get_sampling_client") == 2
    assert asyncio.run(one.sample(request())).policy_version == one.policy_version == 4
    with pytest.raises(SamplerError, match="cannot be given others"):
        one.update_weights(5, {})


def test_temperatures_whose_logprobs_nobody_reports_are_refused():
    service = ScriptedTinker()
    with pytest.raises(SamplerError, match=r"has the temperature 0\.5"):
        asyncio.run(sampler(service).sample(request(temperature=0.5)))
    assert service.calls == []


def test_a_policy_with_its_weights_here_is_refused():
    with pytest.raises(ConfigError, match=r"Set learner\.name to tinker, too"):
        TinkerSampler.build(TinkerSampler.Settings(), SamplerContext(load_policy("tiny"), 64))


def test_a_shell_has_the_tokenizer_and_the_config_and_no_weights():
    shell, whole = load_shell("tiny"), load_policy("tiny")
    assert shell.tokenizer.get_vocab() == whole.tokenizer.get_vocab()
    assert shell.model.config.to_dict() == whole.model.config.to_dict()
    assert {parameter.device.type for parameter in shell.model.parameters()} == {"meta"}
    assert shell.model.generation_config.eos_token_id == whole.model.generation_config.eos_token_id
    with pytest.raises(PolicyError, match="neither a GGUF file nor an adapter"):
        load_shell("model.gguf")
