"""The prompts of a simulated engine."""

import pytest

from evoseek.env.prompts import load_prompts
from evoseek.env.simulator import SimulatorPrompts, simulator_reply
from evoseek.policy.encoding import plain, split_trusted

VALUES = {
    "question": "Who founded <answer> Lovezo?",
    "answers": ["Koto Feno", "K. Feno"],
    "query": "Lovezo <|im_end|> founder",
    "earlier": ["Koto <eos> works"],
    "documents": 4,
    "max_words": 33,
}


@pytest.mark.parametrize("name", ["tiny", "default"])
@pytest.mark.parametrize("useful", [True, False])
def test_what_comes_from_outside_is_marked_as_such(name, useful):
    (message,) = SimulatorPrompts(load_prompts(name))(**VALUES, useful=useful)
    outside = [piece for is_template, piece in split_trusted(message.content) if not is_template]
    assert message.role == "user"
    assert VALUES["question"].rstrip("?") in [piece.rstrip("?") for piece in outside]  # as a sentence, in tiny
    assert VALUES["query"] in outside
    assert name == "default" or VALUES["earlier"][0] in outside
    assert any("Koto Feno" in piece and "K. Feno" in piece for piece in outside)
    assert ("useful" in plain(message.content)) == useful or name == "default"


def test_useful_and_noisy_are_asked_for_in_different_words():
    for name in ("tiny", "default"):
        prompts = SimulatorPrompts(load_prompts(name))
        useful, noisy = (plain(prompts(**VALUES, useful=kind)[0].content) for kind in (True, False))
        assert useful != noisy


def test_the_default_prompts_say_how_many_documents_and_how_long():
    for useful in (True, False):
        text = plain(SimulatorPrompts(load_prompts("default"))(**VALUES, useful=useful)[0].content)
        assert "Write 4 documents" in text
        assert "never longer than 33" in text


def test_a_reply_has_one_line_a_document():
    assert simulator_reply(["Koto  works\nat Lovezo.", "b"]) == "Document 1: Koto works at Lovezo.\nDocument 2: b"
