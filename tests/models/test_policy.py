"""Can a tiny policy read its texts?"""

from dataclasses import replace

from evoseek.models.load import load_policy
from evoseek.models.policy import is_spelled, vocabulary_notice
from evoseek.world.world import World

REAL = ["Which film came out first, Terror Is a Man or Moonrise Kingdom?", "What does the warranty cover?"]


def test_real_text_is_spelled_and_the_text_of_a_world_of_unseen_names_is_not():
    policy = load_policy("tiny")
    world = [document.text for document in World.generate(1, 300, "evaluation").documents()]
    assert vocabulary_notice(policy, world, what="the questions") is None
    notice = vocabulary_notice(policy, REAL, what="the questions")
    assert "the policy tiny" in notice
    assert "--model" in notice


def test_single_letters_are_counted_by_hand():
    tokenizer = load_policy("tiny").tokenizer
    assert is_spelled(tokenizer, ["x ? ? ?"])  # 1 of 4: more than 0.2
    assert not is_spelled(tokenizer, ["x ? ? ? ?"])  # "?" is no letter
    assert not is_spelled(tokenizer, [])


def test_a_policy_that_is_spoken_to_in_other_words_is_not_judged(monkeypatch):
    policy = load_policy("tiny")
    monkeypatch.delattr(policy.model.config, "evoseek_prompts")
    assert vocabulary_notice(replace(policy, name="another"), REAL, what="the questions") is None
