"""The tokenizer of the embedded tiny policy: a few hundred pieces, which can also spell names never seen.

Words of the prompts, the generated world and the formats are one token each. Every other word falls into syllables
(consonant, vowel) and, where it has none, into letters and digits, in a word-initial and a continuing form, so that a
new name is a short sequence of known pieces. Letter case, accents and white space do not matter. Tags are added tokens:
outside text never becomes one, because whoever renders it encodes it apart (`evoseek.renderers.encoding`).
"""

from __future__ import annotations

from string import ascii_lowercase, digits, punctuation

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from evoseek.renderers.tags import TAGS
from evoseek.world.grammar import WORDS
from evoseek.world.world import RELATIONS, SYLLABLES, TYPES

PROMPT_WORDS = [
    "solve",
    "propose",
    "read",
    "judge",
    "simulate",
    "hop",
    "hops",
    "searches",
    "passage",
    "passages",
    "query",
    "document",
    "documents",
    "useful",
    "noisy",
    "answer",
    "question",
    "yes",
    "no",
    "so",
    "nothing",
    "found",
    "unknown",
    "correct",
    "incorrect",
    "error",
    "because",
    "then",
    "also",
    "not",
]
UNKNOWN, PADDING, END = "<unk>", "<pad>", "<eos>"


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Make the tokenizer. The same pieces get the same ids every time."""
    words = [*PROMPT_WORDS, *WORDS, *RELATIONS, *TYPES, "'s"]
    pieces = [*SYLLABLES, *ascii_lowercase, *digits]
    ordered = [PADDING, UNKNOWN, END, *words, *pieces, *(f"##{piece}" for piece in pieces), *punctuation]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(ordered))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=200))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"'s\b|\w+|[^\w\s]"), behavior="removed", invert=True)
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tags = [form.format(tag) for tag in TAGS for form in ("<{}>", "</{}>")]
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=UNKNOWN,
        pad_token=PADDING,
        eos_token=END,
        clean_up_tokenization_spaces=False,
    )
