"""Can a tiny policy read its texts?"""

from dataclasses import replace

from evoseek.policy.load import load_policy
from evoseek.policy.policy import spelled_share, vocabulary_notice
from evoseek.world.world import World

REAL = ["Which film came out first, Terror Is a Man or Moonrise Kingdom?", "What does the warranty cover?"]


def test_real_text_is_spelled_and_the_text_of_a_world_of_unseen_names_is_not():
    policy = load_policy("tiny")
    world = [document.text for document in World.generate(1, 300, "evaluation").documents()]
    assert spelled_share(policy.tokenizer, world) < 0.02
    assert spelled_share(policy.tokenizer, REAL) > 0.4
    assert vocabulary_notice(policy, world, what="the questions") is None
    notice = vocabulary_notice(policy, REAL, what="the questions")
    assert "the policy tiny" in notice
    assert "--model" in notice


def test_single_letters_are_counted_by_hand():
    # "x y z" is spelled, "?" is no letter: 3 of 4
    assert spelled_share(load_policy("tiny").tokenizer, ["x y z ?"]) == 0.75


def test_a_policy_that_is_spoken_to_in_other_words_is_not_judged(monkeypatch):
    policy = load_policy("tiny")
    monkeypatch.delattr(policy.model.config, "evoseek_prompts")
    assert vocabulary_notice(replace(policy, name="another"), REAL, what="the questions") is None
