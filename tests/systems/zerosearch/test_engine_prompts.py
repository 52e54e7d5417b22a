"""The prompts of a simulated engine.

The simulator's settings reach what they are for.
"""

import asyncio

import pytest

from evoseek.assembly.sources import load_settings
from evoseek.errors import ConfigError, ToolError
from evoseek.models.load import load_policy, save_policy
from evoseek.renderers.encoding import plain, split_trusted
from evoseek.rollout.prompts import load_prompts
from evoseek.systems.zerosearch.engine import simulated_engine, simulator_messages, simulator_reply, write_card
from evoseek.types import Question

QUESTION = Question("q", "Who founded <answer> Lovezo?", ("Koto Feno", "K. Feno"))
QUERY, EARLIER = "Lovezo <|im_end|> founder", "Koto <eos> works"


def prompt(name, useful):
    (message,) = simulator_messages(
        load_prompts(name), QUESTION, QUERY, [EARLIER], useful=useful, documents=4, max_words=33
    )
    return message


@pytest.mark.parametrize("name", ["tiny", "default"])
@pytest.mark.parametrize("useful", [True, False])
def test_what_comes_from_outside_is_marked_as_such(name, useful):
    message = prompt(name, useful)
    outside = [piece for is_template, piece in split_trusted(message.content) if not is_template]
    assert message.role == "user"
    assert QUESTION.text.rstrip("?") in [piece.rstrip("?") for piece in outside]  # as a sentence, in tiny
    assert QUERY in outside
    assert name == "default" or EARLIER in outside
    assert any("Koto Feno" in piece and "K. Feno" in piece for piece in outside)
    assert ("useful" in plain(message.content)) == useful or name == "default"


def test_useful_and_noisy_are_asked_for_in_different_words():
    for name in ("tiny", "default"):
        useful, noisy = (plain(prompt(name, kind).content) for kind in (True, False))
        assert useful != noisy


def test_the_default_prompts_say_how_many_documents_and_how_long():
    for useful in (True, False):
        text = plain(prompt("default", useful).content)
        assert "Write 4 documents" in text
        assert "never longer than 33" in text


def test_a_reply_has_one_line_a_document():
    assert simulator_reply(["Koto  works\nat Lovezo.", "b"]) == "Document 1: Koto works at Lovezo.\nDocument 2: b"


def zerosearch(**settings):
    options = {name.replace("__", "."): value for name, value in settings.items()}
    return load_settings(system="zerosearch", options=options)


def test_an_engine_has_the_simulator_s_settings_and_no_noise_of_its_own():
    engine = simulated_engine(zerosearch(simulator__model="tiny", simulator__max_words=7, run__seed=3))
    assert (engine.max_words, engine.seed, engine.noise) == (7, 3, 0.0)


@pytest.mark.parametrize(
    ("top_k", "max_words", "fits"), [(3, 100, True), (3, 120, True), (3, 99, False), (5, 100, False)]
)
def test_a_tuned_simulator_is_used_as_it_was_tuned(tmp_path, top_k, max_words, fits):
    """It writes three documents of at most 100 words: more room does no harm, all else makes its replies unreadable."""
    save_policy(load_policy("tiny"), tmp_path / "tuned")
    write_card(tmp_path / "tuned", top_k=3, max_words=100)
    model = str(tmp_path / "tuned")
    config = zerosearch(simulator__model=model, search__top_k=top_k, simulator__max_words=max_words)
    if fits:
        assert simulated_engine(config).max_words == max_words
    else:
        with pytest.raises(ConfigError, match=r"was tuned for .*top_k': 3.*Use the settings"):
            simulated_engine(config)


@pytest.mark.parametrize("card", ["", "{}", "[3]", '{"search.top_k": 3, "simulator.max_words": "many"}'])
def test_a_damaged_card_of_a_simulator_is_named(tmp_path, card):
    (tmp_path / "simulator.json").write_text(card)
    with pytest.raises(ConfigError, match=r"simulator\.json cannot be read"):
        simulated_engine(zerosearch(simulator__model=str(tmp_path), search__top_k=3))


def test_the_tiny_policy_was_never_told_how_to_simulate():
    """It never ends its turn: a reply that is cut is a failure, and no document."""
    config = zerosearch(simulator__model="tiny", simulator__max_tokens=8)
    bound = simulated_engine(config).for_question(Question("q", "what ?", ("x",)), "t")
    with pytest.raises(ToolError):
        asyncio.run(bound.search(["koto's employer"], 1))
