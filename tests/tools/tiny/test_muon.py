"""Muon and AdamW as one optimizer: each parameter belongs to the right one, and state goes through a checkpoint."""

import torch
from tests.doubles.learners import learner_of
from tools.tiny.model import tiny_config, tiny_model
from tools.tiny.muon import MuonAdamW
from transformers import LlamaForCausalLM

from evoseek.learner.learner import Learner
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.types import TrainingSample

SAMPLE = TrainingSample((3, 4, 5, 6, 4, 5, 6), (False, *([True] * 6)), (0.0,) * 7, (0.0,) * 7)


def model() -> LlamaForCausalLM:
    return tiny_model(tiny_config(40, eos_token_id=2, pad_token_id=0, layers=2), seed=0)


def learner(policy: LlamaForCausalLM) -> Learner:
    return learner_of(LogprobModel(policy), loss=CrossEntropyLoss(), learning_rate=0.02, optimizer=MuonAdamW)


def test_hidden_matrices_belong_to_muon_and_all_else_to_adamw() -> None:
    policy = model()
    muon, adamw = MuonAdamW(policy, learning_rate=0.02).parts
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    of_muon = {names[id(p)] for group in muon.param_groups for p in group["params"]}
    of_adamw = {names[id(p)] for group in adamw.param_groups for p in group["params"]}
    assert of_muon == {name for name in names.values() if "_proj.weight" in name}
    assert of_muon | of_adamw == set(names.values())
    assert not of_muon & of_adamw


def test_learning_goes_on_from_its_saved_state_as_if_never_stopped() -> None:
    straight = model()
    uninterrupted = learner(straight)
    for _ in range(4):
        uninterrupted.update([SAMPLE])
    first_half = model()
    before = learner(first_half)
    for _ in range(2):
        before.update([SAMPLE])
    second_half = model()
    second_half.load_state_dict(first_half.state_dict())
    after = learner(second_half)
    after.load_state_dict(*before.state_dict())
    for _ in range(2):
        after.update([SAMPLE])
    for left, right in zip(straight.parameters(), second_half.parameters(), strict=True):
        assert torch.equal(left, right)


def test_it_learns() -> None:
    trained = learner(model())
    losses = [trained.update([SAMPLE])["loss"] for _ in range(15)]
    assert losses[-1] < losses[0] / 4
