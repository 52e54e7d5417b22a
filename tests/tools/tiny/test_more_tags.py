"""New tags: one token each, like an old one at first, and nothing else is changed."""

from pathlib import Path

import pytest
import torch
from tools.tiny.more_tags import add_tags

from evoseek.models.load import Policy, load_policy, save_policy


@pytest.fixture
def policy() -> Policy:
    return load_policy("tiny")


def logits(policy: Policy, text: str) -> torch.Tensor:
    ids = policy.tokenizer.encode(text, add_special_tokens=False)
    with torch.no_grad():
        return policy.model(torch.tensor([ids])).logits[0, -1]


def test_a_new_tag_is_one_token_and_begins_like_the_old_one(policy: Policy) -> None:
    before = logits(policy, "<search> kalo </search>")
    add_tags(policy, {"browse": "search"})
    ids = policy.tokenizer.encode("<browse> kalo </browse>", add_special_tokens=False)
    assert policy.tokenizer.decode([ids[0], ids[-1]]) == "<browse> </browse>"
    after = logits(policy, "<browse> kalo </browse>")
    assert torch.allclose(after[: len(before)], before, atol=1e-5)
    old = policy.tokenizer.encode("<search> </search>")
    assert torch.allclose(after[[ids[0], ids[-1]]], before[old], atol=1e-5)


def test_it_is_kept_when_the_policy_is_saved(policy: Policy, tmp_path: Path) -> None:
    add_tags(policy, {"browse": "search"})
    save_policy(policy, tmp_path / "saved")
    again = load_policy(str(tmp_path / "saved"))
    assert again.tokenizer.encode("<browse>") == policy.tokenizer.encode("<browse>")
    assert torch.equal(logits(again, "<browse> 127"), logits(policy, "<browse> 127"))
