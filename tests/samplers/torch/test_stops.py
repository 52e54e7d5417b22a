"""Stop rules over tokenizers whose tokens are whole words, pieces or bytes."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from evoseek.samplers.torch.stops import PassTimes, StopRules
from evoseek.types import StopConditions


def pieces(*texts: str) -> PreTrainedTokenizerFast:
    """One token per text, written one after the other."""
    tokenizer = Tokenizer(models.WordLevel({text: number for number, text in enumerate(texts)}, unk_token=texts[0]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=texts[0])


def single_bytes() -> PreTrainedTokenizerFast:
    """One token per byte, as byte-level tokenizers fall back to."""
    vocabulary = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=False))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def end(tokenizer: PreTrainedTokenizerFast, completion: list[int], stop: StopConditions) -> int | None:
    """How many tokens the completion has when it stops, or None."""
    rules = StopRules(tokenizer, eos_ids=())
    rule = rules.rule(stop)
    for count in range(1, len(completion) + 1):
        if completion[count - 1] in rule.checked and rules.ends(rule, completion[:count]):
            return count
    return None


def test_a_token_may_hold_more_than_the_end_of_the_string():
    tokenizer = pieces("x", "</sea", "rch> and", "rch", "> more", ">")
    stop = StopConditions(strings=("</search>",))
    assert end(tokenizer, [0, 1, 2, 0], stop) == 3
    assert end(tokenizer, [1, 3, 4], stop) == 3
    assert end(tokenizer, [5, 1, 3, 0, 5], stop) is None


def test_only_tokens_with_the_last_character_are_looked_at():
    rules = StopRules(pieces("x", "ab", "b", "ba", "c"), eos_ids=(4,))
    rule = rules.rule(StopConditions(strings=("aab",), token_ids=(0,)))
    assert rule.enders == {1, 2, 3}
    assert rule.token_ids == {0, 4}
    assert rule.checked == {0, 1, 2, 3, 4}


def test_a_string_that_ends_with_white_space_may_end_anywhere():
    assert end(pieces("x", "a\n", "\n", "b"), [0, 1, 2, 3], StopConditions(strings=("\n\n",))) == 3


def test_a_string_that_ends_with_a_space_which_the_decoder_puts_in():
    tokenizer = Tokenizer(models.WordPiece({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="a")
    assert end(fast, [1, 0, 1, 1], StopConditions(strings=("a ",))) == 3


def test_an_empty_string_never_stops():
    assert end(pieces("x", "y"), [0, 1, 0], StopConditions(strings=("",))) is None


@pytest.mark.parametrize("string", ["答案", "é!", "</répondre>", "🙂"])
def test_characters_of_several_bytes_in_tokens_of_one_byte(string: str):
    tokenizer = single_bytes()
    before = tokenizer.encode("naïve 答 ")
    whole = [*before, *tokenizer.encode(string), *before]
    assert end(tokenizer, whole, StopConditions(strings=(string,))) == len(before) + len(string.encode())


def test_a_long_string_of_short_tokens():
    string = "end of everything that was said, and more than sixteen tokens of it"
    tokenizer = single_bytes()
    whole = tokenizer.encode("so " + string)
    assert end(tokenizer, whole, StopConditions(strings=(string,))) == len(whole)


def test_a_pass_counts_as_five_usual_ones_at_most():
    times = PassTimes()
    assert [times.own(seconds) for seconds in (1.0, 1.0, 3.0, 100.0, 1.0, 5.0, 5.5)] == [
        1.0, 1.0, 3.0, 5.0, 1.0, 5.0, 5.5
    ]  # fmt: skip


def test_of_two_passes_the_shorter_one_is_usual():
    times = PassTimes()
    assert [times.own(100.0), times.own(1.0), times.own(100.0)] == [100.0, 1.0, 100.0]
    times = PassTimes()
    assert [times.own(1.0), times.own(100.0)] == [1.0, 5.0]


def test_a_machine_that_stays_slower_is_followed():
    """Of the last 101 passes 51 are slow from the 51st slow one on."""
    times = PassTimes()
    for _ in range(200):
        times.own(1.0)
    assert [times.own(10.0) for _ in range(60)] == [5.0] * 50 + [10.0] * 10
