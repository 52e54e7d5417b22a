"""Weights that are sent to vLLM's servers, with a scripted server and a scripted channel in place of two GPUs."""

import asyncio
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from tests.doubles.engines import ScriptedVLLM
from transformers import LlamaConfig, LlamaForCausalLM

from evoseek.errors import ConfigError
from evoseek.policy.engines.launch import Model
from evoseek.policy.engines.link import Link
from evoseek.policy.engines.nccl import Meeting, NCCLTransfer, SentWeights, Source, connect_vllm
from evoseek.policy.engines.vllm import VLLM, VLLMSampler
from evoseek.policy.load import load_policy
from evoseek.policy.lora import add_adapter
from evoseek.policy.policy import Policy, SamplerContext, SamplerHome
from evoseek.policy.scripted import ScriptedSampler
from evoseek.types import SampleRequest, StopConditions

POLICY = load_policy("tiny")
REQUEST = SampleRequest("q1/0", 0, (5, 6, 7), 24, 1.0, StopConditions(("</search>",)), 0)


@dataclass
class Wire:
    """Connects, and keeps what was sent. Each of `breaks` breaks one sending."""

    server: ScriptedVLLM
    meetings: list[Meeting] = field(default_factory=list)
    sent: list[dict[str, torch.Tensor]] = field(default_factory=list)
    breaks: list[Exception] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)  # is waited for before sending, while it is clear
    closing: ExitStack = field(default_factory=ExitStack)
    ended: int = 0

    def __post_init__(self):
        self.gate.set()

    def connect(self, meeting, source):
        self.meetings.append(meeting)
        return WireChannel(self, source)


@dataclass
class WireChannel:
    wire: Wire
    source: Source

    def send_weights(self):
        assert [path for path, _ in self.wire.server.received][-2:] == ["/pause", "/get_world_size"]
        self.wire.gate.wait(5.0)
        if self.wire.breaks:
            raise self.wire.breaks.pop()
        self.wire.sent.append(dict(self.source))

    def shutdown(self):
        self.wire.ended += 1
        raise RuntimeError("The connection is gone already.")


def settings(*urls, **own):
    return VLLMSampler.Settings(name="vllm", urls=urls or ("http://127.0.0.1:1",), transfer="nccl", attempts=1, **own)


def run_with(wire, act, **more):
    """What `act` makes of a sampler whose server gets its weights over the wire."""

    async def run():
        async with wire.server.serving() as url:
            own = settings(url, transfer_host="10.0.0.1", **more)
            yielded = VLLMSampler(
                POLICY,
                [Link(url, own, wait_s=0.001)],
                max_length=256,
                files=SentWeights(POLICY),
                engine=VLLM(NCCLTransfer(own.transfer_host, own.timeout_s, connect=wire.connect, closing=wire.closing)),
            )
            return await act(yielded)

    return asyncio.run(run())


@pytest.fixture
def wire():
    return Wire(ScriptedVLLM(ScriptedSampler(lambda request: "<search> a </search>", POLICY.tokenizer)))


def test_all_weights_are_sent_while_the_server_pauses_once_for_each_version(wire):
    async def act(sampler):
        first = await sampler.sample(REQUEST)
        again = await sampler.sample(REQUEST)
        with torch.no_grad():
            weight = next(POLICY.model.parameters())
            weight.add_(1.0)
            sampler.update_weights(1)
            weight.sub_(1.0)
        return [first.policy_version, again.policy_version, (await sampler.sample(REQUEST)).policy_version]

    before = {name: value.clone() for name, value in POLICY.model.state_dict().items()}
    assert run_with(wire, act) == [0, 0, 1]
    (meeting,) = wire.meetings
    assert (meeting.gpus, meeting.host) == (4, "10.0.0.1")
    assert len(wire.sent) == 2
    name = next(iter(dict(POLICY.model.named_parameters())))
    for number, sent in enumerate(wire.sent):
        assert sent.keys() >= before.keys()
        assert torch.equal(sent[name], before[name] + number)  # those of the update, though they have changed since
    asked = [path for path, _ in wire.server.received if path in {"/pause", "/resume", "/update_weight_version"}]
    assert asked == ["/pause", "/update_weight_version", "/resume"] * 2
    assert [turn["cache_salt"] for turn in wire.server.turns] == ["0", "0", "1"]


def test_the_head_is_sent_though_it_is_tied():
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=32, tie_word_embeddings=True, **sizes))
    tensors = SentWeights(Policy(model, POLICY.tokenizer, "tied")).write(3).tensors
    embeddings = model.get_input_embeddings().weight
    assert torch.equal(tensors["lm_head.weight"], embeddings)
    assert tensors["lm_head.weight"].data_ptr() != embeddings.data_ptr()


def test_a_sending_that_fails_ends_the_run(wire):
    wire.breaks = [RuntimeError("NCCL error: unhandled system error")]

    async def act(sampler):
        with pytest.raises(ConfigError, match=r"version 0 could not be sent .* unhandled system error.*start it anew"):
            await sampler.sample(REQUEST)

    run_with(wire, act)
    assert not wire.sent


def test_one_that_takes_too_long_ends_it_too(wire):
    wire.gate.clear()

    async def act(sampler):
        with pytest.raises(ConfigError, match=r"could not be sent .* TimeoutError"):
            await sampler.sample(REQUEST)
        wire.gate.set()

    run_with(wire, act, timeout_s=0.2)


def test_a_caller_that_is_cancelled_waits_until_all_is_sent(wire):
    async def act(sampler):
        wire.gate.clear()
        turn = asyncio.create_task(sampler.sample(REQUEST))
        while not wire.meetings:
            await asyncio.sleep(0.001)
        turn.cancel()
        await asyncio.sleep(0.05)
        assert wire.server.counts["/resume"] == 0
        wire.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert (len(wire.sent), wire.server.counts["/resume"]) == (1, 1)
        return await sampler.sample(REQUEST)

    assert run_with(wire, act).policy_version == 0
    assert (len(wire.sent), len(wire.meetings)) == (2, 1)


def test_connections_end_with_the_run(wire):
    run_with(wire, lambda sampler: sampler.sample(REQUEST))
    wire.closing.close()
    assert wire.ended == 1


def test_servers_have_to_be_new_enough(wire):
    wire.server.version = "0.31.2"

    async def act(sampler):
        with pytest.raises(ConfigError, match=r"runs vLLM 0.31.2; 0.32 or later is needed for weights by NCCL"):
            await sampler.sample(REQUEST)

    run_with(wire, act)


def test_the_server_is_started_for_it():
    model = Model("m", 512, "bfloat16", 0)
    words = VLLM().command(settings(), model, (0,), 8000).words
    place = words.index("--weight-transfer-config")
    assert words[place + 1] == '{"backend": "nccl"}'
    files = VLLMSampler.Settings(name="vllm", urls=("http://127.0.0.1:1",))
    assert "--weight-transfer-config" not in VLLM().command(files, model, (0,), 8000).words


def test_what_cannot_go_by_nccl_is_refused():
    adapter = add_adapter(load_policy("tiny"), "policy", rank=2, alpha=4.0)
    urls = [f"http://127.0.0.1:{port}" for port in (1, 2)]
    for context, what in (
        (SamplerContext(adapter, 256), "an adapter is trained"),
        (SamplerContext(POLICY, 256), "on cpu, not on a GPU"),
        (SamplerContext(POLICY, 256, home=SamplerHome(processes=2)), "2 processes train together"),
    ):
        with pytest.raises(ConfigError, match=rf"transfer is nccl, but .*{what}.*to files"):
            VLLMSampler.build(settings(*urls), context)
    for rank, processes, what in ((4, 1, "an adapter"), (0, 2, "2 processes")):  # by --dry-run already
        with pytest.raises(ConfigError, match=rf"transfer is nccl, but .*{what}"):
            VLLMSampler.planned(settings(*urls), Path(), 256, "float32", rank, processes)
    with pytest.raises(ConfigError, match="needs the package vllm"):
        connect_vllm(Meeting("http://127.0.0.1:1", 1, "127.0.0.1", 1, 1.0), Source())
