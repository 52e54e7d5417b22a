import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.errors import PolicyError
from evoseek.renderers.encoding import TextEncoder, harmless, is_control, outside, plain, split_trusted, trusted
from evoseek.text.scripts import well_formed

TAGS = ("search", "information", "think", "answer", "question", "tool_call", "tool_response")
CHAT = ("qwen", "smollm2", "real qwen", "real smollm2")
BYTES = (*CHAT, "llama", "base")
NAMES = (*BYTES, "wordpiece", "words", "sentencepiece")
FRAGMENTS = [
    *(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|eot_id|>",
        "<|begin_of_text|>",
        "<s>",
        "</s>",
        "<eos>",
        "<ctl>",
    ),
    *(
        "<|start_header_id|>",
        "<|end_header_id|>",
        "[CLS]",
        "[SEP]",
        "[PAD]",
        "[cls]",
        "<start_of_turn>",
        "<unk>",
        "[UNK]",
    ),
    *("<search>", "</search>", "<answer>", "</answer>", "<information>", "</Information>", "< /answer >", "<ANSWER>"),
    *(
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<think>",
        "<\tsearch\n>",
        "</ think",
        "<b>",
    ),
    *(
        "＜search＞",
        "﹤/answer﹥",
        "<ｓｅａｒｃｈ>",
        "<séarch>",
        "<ſearch>",
        "<\u200banswer>",
        "&lt;answer>",
        "<￼search>",
    ),
    *(
        "<",
        "</",
        ">",
        "|",
        "☞",
        "im_end",
        "search",
        "answer",
        " ",
        "\n",
        "\t",
        "capital of France",
        "☃",
        "é",
        "\ud800",
        "\x00",
    ),
    *("\ufdd0", "\ufdd1", "\ufdd2", "assistant", "user", '{"name": "search"}', "'s", "▁"),
]
hostile = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4) | st.characters(), max_size=12).map("".join)
tag = re.compile(rf"<\s*/?\s*({'|'.join(TAGS)})", re.IGNORECASE)


@pytest.fixture(scope="session")
def encoder(made):
    return cache(lambda name: TextEncoder(made(name), TAGS))


def meaningful(tokenizer, text):
    """The ids that must not come of a text: those of control tokens, and the unknown token's where the vocabulary has
    every character of the text, by itself and within a word."""
    control = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special or token.content.strip()}
    pieces = [form + one for one in {*text, *"&lt;"} for form in ("", "a")]
    lacks = any(tokenizer.unk_token_id in tokenizer.encode(one, add_special_tokens=False) for one in pieces)
    return control - {tokenizer.unk_token_id} if lacks else control | {tokenizer.unk_token_id}


@pytest.mark.parametrize("name", NAMES)
@given(text=hostile)
@settings(max_examples=120, deadline=None)
def test_no_outside_text_becomes_a_control_token_or_a_tag(made, encoder, name, text):
    tokenizer = made(name)
    ids = encoder(name).outside(text)
    assert not set(ids) & meaningful(tokenizer, well_formed(text))
    view = tokenizer.decode([i for i in ids if i != tokenizer.unk_token_id], clean_up_tokenization_spaces=False)
    assert not tag.search(view)


@pytest.mark.parametrize("name", NAMES)
def test_no_control_string_of_a_tokenizer_becomes_a_control_token(made, encoder, name):
    tokenizer = made(name)
    strings = {token.content for token in tokenizer.added_tokens_decoder.values() if is_control(token)}
    for text in sorted(strings | set(tokenizer.all_special_tokens)):
        for written in (text, f"mayor {text}of", text * 3, text[:3] + text + text[3:]):
            assert not set(encoder(name).outside(written)) & meaningful(tokenizer, written)
            if (
                name in BYTES
                and text[0] == "<"
                and text not in {f"{form}{tag}>" for tag in TAGS for form in ("<", "</")}
            ):
                assert encoder(name).decode(encoder(name).outside(written)) == written


@pytest.mark.parametrize("name", BYTES)
@given(text=st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_harmless_text_is_encoded_as_the_tokenizer_does(made, encoder, name, text):
    text = well_formed(text).replace("<", "").replace("☞", "")
    assert encoder(name).outside(text) == tuple(made(name).encode(text, add_special_tokens=False))


@pytest.mark.parametrize("name", BYTES)
def test_control_strings_come_back_as_the_text_that_they_were(encoder, name):
    text = "a <|im_end|> b <|eot_id|></s> c"
    assert encoder(name).decode(encoder(name).outside(text)) == text


@pytest.mark.parametrize("name", BYTES)
def test_tags_are_defused_and_other_angles_are_not(encoder, name):
    read = encoder(name).decode(encoder(name).outside("1 < 2 <b> <search>x</search> <Answer"))
    assert read == "1 < 2 <b> &lt;search>x&lt;/search> &lt;Answer"


def test_a_tag_that_only_normalisation_makes_is_defused(encoder):
    read = encoder("wordpiece").decode(encoder("wordpiece").outside("＜ｓearch＞ the mayor"))
    assert not tag.search(read)
    assert read.endswith("the mayor")


def test_control_strings_in_the_plain_vocabulary_are_cut_however_many_there_are(made, encoder):
    ids = encoder("words").outside("<ctl> mayor " * 3000)
    assert made("words").convert_tokens_to_ids("<ctl>") not in ids
    assert ids.count(made("words").convert_tokens_to_ids("mayor")) == 3000


def test_added_white_space_is_text(made, encoder):
    tokenizer = made("sentencepiece")
    kinds = {token.content: is_control(token) for token in tokenizer.added_tokens_decoder.values()}
    assert (kinds["\n"], kinds["\n\n"], kinds["<b>"], kinds["<s>"]) == (False, False, True, True)
    assert tokenizer.convert_tokens_to_ids("\n\n") in encoder("sentencepiece").outside("mayor\n\nof")


def test_a_special_character_is_left_out_and_an_unknown_word_is_not(made, encoder):
    assert encoder("qwen").outside("a☞b") == encoder("qwen").outside("ab")
    assert encoder("words").outside("mayor xyzzy")[1] == made("words").unk_token_id


@pytest.mark.parametrize("name", CHAT)
def test_template_text_keeps_its_control_tokens(made, encoder, name):
    end = made(name).convert_tokens_to_ids("<|im_end|>")
    text = trusted(f"read <|im_end|> {outside('x <|im_end|>')} <search>")
    ids = encoder(name).marked(text)
    assert ids.count(end) == 1
    assert encoder(name).decode(ids) == "read <|im_end|> x <|im_end|> <search>"


@pytest.mark.parametrize("name", CHAT)
def test_text_is_outside_unless_marked_and_marks_cannot_be_copied(made, encoder, name):
    end = made(name).convert_tokens_to_ids("<|im_end|>")
    marked = trusted("<|im_end|>")
    stolen = trusted(f"{outside(marked)}{outside('</')}{outside('search>')}")  # a text that somehow holds the marks
    assert end not in encoder(name).marked("<|im_end|>")
    assert end not in encoder(name).marked(stolen)
    assert plain(stolen) == "<|im_end|></search>"
    assert list(split_trusted(stolen)) == [(False, "<|im_end|></search>")]  # neighbours are defused together


def test_a_tokenizer_without_offsets_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(PolicyError, match=r"tokenizer\.json"):
        TextEncoder(Slow())


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("x<|im_end|>", "x&lt;|im_end|>"),
        ("</s> ＜s> ﹤s> <\u200b|end|>", "&lt;/s> &lt;s> &lt;s> &lt;\u200b|end|>"),
        ("[INST] [/INST] [ /INST ] [TOOL_CALLS]", "&#91;INST] &#91;/INST] &#91; /INST ] &#91;TOOL_CALLS]"),
        ("[|system|] ]~b]system", "&#91;|system|] &#93;~b]system"),
        ("[\u200bINST]", "&#91;\u200bINST]"),
        ("[1] [a, b] x > 3 | y [] ~", "[1] [a, b] x > 3 | y [] ~"),
    ],
)
def test_what_might_be_a_control_string_is_broken_where_no_tokenizer_is_known(text, broken):
    assert harmless(text) == broken
    assert harmless(broken) == broken


def test_harmless_takes_time_in_proportion():
    assert harmless("[" * 200_000 + " " * 200_000) == "[" * 200_000 + " " * 200_000


@pytest.mark.parametrize("name", [*BYTES, "sentencepiece"])
def test_no_control_token_with_a_bracket_comes_of_harmless_text_at_another_readers_tokenizer(made, name):
    """Encoded as a server does it: as a whole."""
    text = well_formed(" x ".join(FRAGMENTS)).replace("☞", "")
    tokenizer, control = made(name), TextEncoder(made(name)).control_ids
    assert not control & set(tokenizer.encode(harmless(text), add_special_tokens=False))
    assert control & set(tokenizer.encode(text, add_special_tokens=False))
