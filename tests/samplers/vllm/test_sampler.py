"""The weights that servers read, and the servers that take them."""

import asyncio
import json
from contextlib import ExitStack

import pytest
import torch
from safetensors import safe_open
from tests.doubles.engines import Failure, ScriptedVLLM
from transformers import LlamaConfig, LlamaForCausalLM

from evoseek.assembly.agent import Agent
from evoseek.assembly.sources import load_settings
from evoseek.errors import TrainingError
from evoseek.learner.logprobs import LogprobModel, with_scores
from evoseek.models.load import load_policy
from evoseek.models.lora import add_adapter
from evoseek.models.policy import Policy, SamplerRun
from evoseek.samplers.torch.sampler import TorchSampler
from evoseek.samplers.vllm.sampler import VLLMSampler, WeightFiles, save_untied
from evoseek.samplers.vllm.server import Link
from evoseek.training.probe import EXACT, WeightsProbe
from evoseek.types import SampleRequest, StopConditions

REQUEST = SampleRequest("q1/0", 0, (5, 6, 7), 8, 1.0, StopConditions(), 0)


def opened(directory):
    """The sampler of a server that has loaded the weights of a directory."""
    return TorchSampler(load_policy(str(directory)), slots=4)


def change(policy):
    with torch.no_grad():
        for name, parameter in policy.model.named_parameters():
            if policy.adapter is None:
                parameter.mul_(1.02)
            elif ".lora_B." in name:
                parameter.add_(0.05)


def run(policy, directory, what, *, server=None):
    """`what(sampler, server, probe)`, with a sampler whose server starts with the policy's own model."""
    server = server or ScriptedVLLM(TorchSampler(load_policy("tiny"), slots=4), open_weights=opened)
    trained = LogprobModel(policy.model, temperature=1.0)

    def score(samples):
        with policy.active():
            return with_scores("old_logprobs", samples, forward=trained, token_budget=512)

    async def within():
        async with server.serving() as url:
            own = VLLMSampler.Settings(name="vllm", urls=(url,))
            files = WeightFiles(policy, SamplerRun(directory))
            sampler = VLLMSampler(policy, [Link(url, own, attempts=2, wait_s=0.001)], max_length=256, files=files)
            agent = Agent.of(load_settings(), policy)
            solver = Agent(agent.settings, policy, sampler, agent.prompts, agent.limits).solver([])
            return await what(sampler, server, WeightsProbe([(solver, score)], EXACT))

    return asyncio.run(within())


@pytest.mark.parametrize("rank", [0, 4])
def test_every_version_reaches_the_server_and_the_probe_finds_the_learners_logprobs(rank, tmp_path):
    policy = load_policy("tiny")
    if rank:
        policy = add_adapter(policy, "policy", rank=rank, alpha=8, seed=1)

    salts = []

    async def what(sampler, server, probe):
        for version in (0, 1, 2):
            if version:
                change(policy)
                sampler.update_weights(version)
            numbers = await probe(version)
            assert numbers["sampling/probe_difference"] < 1e-4
            assert numbers["sampling/servers_lost"] == 0
            completion = await sampler.sample(REQUEST)
            assert completion.policy_version == version
            salts.append(server.turns[-1]["cache_salt"])
        assert len(set(salts)) == 3  # nothing cached is used for another version
        assert len(set(server.loaded)) == 3  # never the same path twice
        assert sum(path.is_dir() for path in server.loaded) == 2
        assert len(server.adapters) == (1 if rank else 0)  # older ones are unloaded

    run(policy, tmp_path, what)


def test_weights_that_were_not_loaded_stop_the_run(tmp_path):
    policy = load_policy("tiny")
    own = TorchSampler(load_policy("tiny"), slots=4)
    server = ScriptedVLLM(own)  # says that it has loaded what it has not

    async def what(sampler, server, probe):
        await probe(0)
        change(policy)
        sampler.update_weights(1)
        with pytest.raises(
            TrainingError, match=f"step 1, the server {server.url} and the learner .* has other weights"
        ):
            await probe(1)

    run(policy, tmp_path, what, server=server)


def test_a_server_that_failed_gets_the_weights_again(tmp_path):
    policy = load_policy("tiny")

    async def what(sampler, server, probe):
        await sampler.sample(REQUEST)
        await sampler.sample(REQUEST)
        assert len(server.loaded) == 1
        server.failures.extend([Failure.ERROR] * 2)
        with pytest.raises(Exception, match="The engine is dead"):
            await sampler.sample(REQUEST)
        server.sampler = TorchSampler(load_policy("tiny-weak"), slots=4)  # as if it had been started anew
        await probe(0)
        assert len(server.loaded) == 2

    run(policy, tmp_path, what)


def test_a_tied_head_is_written_beside_the_embeddings_and_the_model_stays_tied(tmp_path):
    tiny = load_policy("tiny")
    config = LlamaConfig(
        vocab_size=tiny.model.config.vocab_size,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    policy = Policy(LlamaForCausalLM(config), tiny.tokenizer, "tied")
    save_untied(policy, tmp_path / "untied")
    assert policy.model.config.tie_word_embeddings
    with safe_open(tmp_path / "untied" / "model.safetensors", "pt") as file:
        head, embeddings = file.get_tensor("lm_head.weight"), file.get_tensor("model.embed_tokens.weight")
    assert torch.equal(head, embeddings)
    assert json.loads((tmp_path / "untied" / "config.json").read_text())["tie_word_embeddings"] is False
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        again = load_policy(str(tmp_path / "untied")).model(input_ids=ids).logits
        assert torch.allclose(again, policy.model.eval()(input_ids=ids).logits, atol=1e-6)


def test_remains_of_a_killed_run_are_removed_and_what_is_not_ours_stays(tmp_path):
    for name in ("weights-versions/weights-0123abcd-7", "model", "proposer-versions"):
        (tmp_path / name).mkdir(parents=True)
    with ExitStack() as closing:
        files = WeightFiles(load_policy("tiny"), SamplerRun(tmp_path, closing))
        written = [files.write(version).directory for version in (3, 4, 4, 5)]
        assert set((tmp_path / "weights-versions").iterdir()) == {*written[-2:]}
    assert {path.name for path in tmp_path.iterdir()} == {"model", "proposer-versions"}
