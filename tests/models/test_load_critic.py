import json
import shutil

import torch
from safetensors.torch import load_file, save_file
from tests.raising import raises

from evoseek.models.load import load_critic, load_policy, save_critic
from evoseek.models.source import tiny_policy_dir

IDS = torch.tensor([[5, 9, 11, 12]])


def test_a_new_critic_is_the_policys_body_and_says_0():
    critic, policy = load_critic("tiny"), load_policy("tiny").model
    assert torch.equal(critic(IDS).logits, torch.zeros(1, 4, 1))
    states = policy.base_model(IDS).last_hidden_state
    assert torch.equal(critic.base_model(IDS).last_hidden_state, states)
    assert not critic.training


def test_a_saved_critic_comes_back(tmp_path):
    critic = load_critic("tiny")
    with torch.no_grad():
        critic.score.weight.normal_()
    save_critic(critic, tmp_path / "critic")
    again = load_critic(str(tmp_path / "critic"))
    assert torch.equal(again(IDS).logits, critic(IDS).logits)
    assert again(IDS).logits.abs().max() > 0


def test_loaded_weights_lie_where_an_allocator_puts_them(tmp_path):
    """Not where a file's header leaves room, on which the last bits of a product would then depend."""
    save_critic(load_critic("tiny"), tmp_path / "critic")
    for model in (load_policy("tiny").model, load_critic("tiny"), load_critic(str(tmp_path / "critic"))):
        assert {parameter.data_ptr() % 64 for parameter in model.parameters()} == {0}


def test_a_model_without_such_a_class_is_refused_with_the_remedy(tmp_path):
    shutil.copytree(tiny_policy_dir(), tmp_path / "policy")
    settings = json.loads((tmp_path / "policy/config.json").read_text())
    (tmp_path / "policy/config.json").write_text(json.dumps(settings | {"model_type": "bamba"}))
    with raises("model.no_critic"):
        load_critic(str(tmp_path / "policy"))


def test_weights_that_are_missing_are_not_made_up(tmp_path):
    shutil.copytree(tiny_policy_dir(), tmp_path / "policy")
    tensors = load_file(tmp_path / "policy/model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, tmp_path / "policy/model.safetensors", metadata={"format": "pt"})
    with raises("model.no_critic", match=r"model\.norm\.weight"):
        load_critic(str(tmp_path / "policy"))
