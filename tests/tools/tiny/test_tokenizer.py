"""The tiny policy's tokenizer: small, lossless for names of any split, and loaded as it was saved."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.tiny.tokenizer import tiny_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from evoseek.renderers.tags import TAGS
from evoseek.world.world import SPLITS, SYLLABLES, World


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return tiny_tokenizer()


def encode(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)


def test_it_is_small(tokenizer: PreTrainedTokenizerFast) -> None:
    assert len(tokenizer) < 500


def test_nothing_in_a_world_is_unknown_to_it(tokenizer: PreTrainedTokenizerFast) -> None:
    for split in SPLITS:
        for document in World.generate(1, 200, split).documents():
            assert tokenizer.unk_token_id not in encode(tokenizer, document.text)


@given(st.lists(st.sampled_from(SYLLABLES), min_size=2, max_size=5).map("".join))
def test_a_name_is_one_piece_a_syllable_and_is_decoded_to_itself(name: str) -> None:
    tokenizer = tiny_tokenizer()
    ids = encode(tokenizer, name.capitalize())
    assert tokenizer.decode(ids) == name
    assert len(ids) == len(name) // 2 or len(ids) == 1  # one: the name is a word of the vocabulary


@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=30))
def test_any_latin_word_is_decoded_to_itself(word: str) -> None:
    tokenizer = tiny_tokenizer()
    assert tokenizer.decode(encode(tokenizer, word)) == word


def test_letter_case_accents_and_spaces_do_not_matter(tokenizer: PreTrainedTokenizerFast) -> None:
    assert encode(tokenizer, "Kalo's  MAYOR ?") == encode(tokenizer, "kalo 's mayor?")
    assert encode(tokenizer, "Kàló") == encode(tokenizer, "kalo")


def test_every_tag_is_one_token_that_is_not_special(tokenizer: PreTrainedTokenizerFast) -> None:
    for tag in TAGS:
        for text in (f"<{tag}>", f"</{tag}>"):
            ids = encode(tokenizer, text)
            assert len(ids) == 1
            assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_the_automatic_class_loads_it_unchanged_beside_its_model(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = "<search> Kalo Meri's mayor </search> 1990 xavier"
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.decode(loaded.encode(text)) == "<search> kalo meri 's mayor </search> 1990 xavier"
