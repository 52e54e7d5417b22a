"""Encodes text to token ids so that text from outside stays text.

A prompt mixes two kinds of text. *Template* text is written by us, by the user's prompt files or by the model's chat
template: its control strings become control tokens. *Outside* text (questions, passages, tool results) may contain
anything, but it never becomes a control token, and never opens or closes a tag of the format.

A string is outside text unless it is marked: `trusted` wraps template text in marks that no outside text can forge,
because they contain a random key of this process. The marks never reach a tokenizer.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from evoseek.errors import PolicyError
from evoseek.text.scripts import well_formed

if TYPE_CHECKING:
    from transformers import AddedToken, PreTrainedTokenizerBase

_KEY = secrets.token_hex(8)
_START, _END = f"\ufdd0{_KEY}\ufdd1", f"\ufdd2{_KEY}\ufdd1"  # U+FDD0.. are "noncharacters", for internal use
_TRUSTED = re.compile(f"{_START}(.*?){_END}", re.DOTALL)

_ANGLE = re.compile("[<\u226e\ufe64\uff1c]")  # and characters that a tokenizer normalises to one
_SQUARE = re.compile(
    r"\[(?=[^\w\[]*[A-Z_]+[^\w\[]*\]|\|)|[\uff3b\ufe47]|\](?=~)"
)  # [INST], [/INST], [|user|], ]~b]user


def trusted(text: str) -> str:
    """Mark text as template text, except parts wrapped by `outside`. Not for text that others can influence."""
    return f"{_START}{text}{_END}"


def outside(value: object) -> str:
    """Mark a value's text as outside text, for insertion into text that will be `trusted`."""
    return f"{_END}{plain(str(value))}{_START}"


def plain(text: str) -> str:
    """Remove the marks from text, for a chat endpoint or a log."""
    return text.replace(_START, "").replace(_END, "")


def harmless(text: str) -> str:
    """Break the openings of tags and control strings in outside text, for a model whose tokenizer is not available.

    They are "<" in every width, and square brackets as in [INST]. A `TextEncoder` is safer: it sees the ids.
    """
    return _SQUARE.sub(lambda bracket: "&#91;" if bracket[0] == "[" else "&#93;", _ANGLE.sub("&lt;", text))


def beginning(text: str, most: int) -> str:
    """Return the first `most` characters of marked text, without counting its marks."""
    if len(text) <= most:
        return text
    kept, left = list[str](), most
    for is_template, piece in split_trusted(text):
        cut = piece[: max(0, left)]
        kept.append(trusted(cut) if is_template and cut else cut)
        left -= len(piece)
    return "".join(kept)


def split_trusted(text: str) -> Iterator[tuple[bool, str]]:
    """Cut marked text into alternating (is template text, piece): neighbours of one kind are one piece."""
    cut = [(index % 2 == 1, plain(piece)) for index, piece in enumerate(_TRUSTED.split(text))]
    for is_template, pieces in groupby((item for item in cut if item[1]), key=itemgetter(0)):
        yield is_template, "".join(piece for _, piece in pieces)


def is_control(token: AddedToken) -> bool:
    """Return whether an added token has a meaning for the model that plain text must not express.

    All special tokens do, and all others except white space and single characters, which only extend a vocabulary.
    """
    return token.special or (len(token.content) > 1 and bool(token.content.strip(" \t\r\n\u2581")))


class TextEncoder:
    """Encodes both kinds of text for one tokenizer; `tags` are the names that outside text must not open or close.

    If outside text yields the id of a control token, the text is cut within that token and encoded in pieces, until no
    control token is left. Because ids are checked, this works for any normalisation by the tokenizer (letter case,
    accents, widths, space around the token) and any origin of the id (an added token or the plain vocabulary). A single
    character, which cannot be cut, is left out. The unknown token's id may stand for characters that the vocabulary
    lacks, unless that token also begins or ends a text; text that spells it is cut like any other control token.
    Raises PolicyError for a tokenizer without the positions of its tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tags: Sequence[str] = ()) -> None:
        if not tokenizer.is_fast:
            raise PolicyError(
                f"The tokenizer is a {type(tokenizer).__name__}, which does not say where in a text its tokens lie, so "
                "text from outside cannot be kept apart from control tokens. Use a model whose directory has a "
                "tokenizer.json (AutoTokenizer and save_pretrained make one for nearly every model)."
            )
        self._tokenizer = tokenizer
        added = tokenizer.added_tokens_decoder
        control = {token_id for token_id, token in added.items() if is_control(token)} | set(tokenizer.all_special_ids)
        if tokenizer.unk_token_id not in (tokenizer.eos_token_id, tokenizer.bos_token_id):
            control.discard(tokenizer.unk_token_id)
        self.control_ids = frozenset(control)
        self._unknown_id = tokenizer.unk_token_id
        self._unknown = tuple(filter(None, self._forms(str(tokenizer.unk_token or ""))))
        self._tag = (
            re.compile(rf"<(?=\s*+(?:/\s*+)?(?:{'|'.join(map(re.escape, tags))}))", re.IGNORECASE) if tags else None
        )

    def template(self, text: str) -> tuple[int, ...]:
        """Encode template text: control strings become control tokens; nothing is added around it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False)) if text else ()

    def outside(self, text: str) -> tuple[int, ...]:
        """Encode outside text."""
        text = plain(well_formed(text))
        if self._tag is None:
            return tuple(self._encode_outside(text))
        ids = self._encode_outside(self._tag.sub("&lt;", text))
        if self._tag.search(self._shown(ids)):  # a tag appears only after normalisation: be strict with every "<"
            openers = {character for character in set(text) if "<" in self._shown(self._encode_outside(character))}
            ids = self._encode_outside("".join("&lt;" if character in openers else character for character in text))
        return tuple(ids)

    def marked(self, text: str) -> tuple[int, ...]:
        """Encode text in which template text is marked by `trusted`."""
        pieces = split_trusted(text)
        return tuple(
            i for is_template, piece in pieces for i in (self.template if is_template else self.outside)(piece)
        )

    def decode(self, token_ids: Sequence[int]) -> str:
        """Decode ids to text, control tokens included."""
        return str(
            self._tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def _encode_outside(self, text: str) -> list[int]:
        encoding = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        ids: list[int] = encoding["input_ids"]  # pyright: ignore[reportAssignmentType]
        spans: list[tuple[int, int]] = encoding["offset_mapping"]  # pyright: ignore[reportAssignmentType]
        control = [
            i in self.control_ids or (i == self._unknown_id and self._spells_unknown(text[start:end]))
            for i, (start, end) in zip(ids, spans, strict=True)
        ]
        cuts = {
            (start + end) // 2
            for (start, end), is_one in zip(spans, control, strict=True)
            if is_one and end - start > 1
        }
        if cuts:
            return [
                i
                for start, end in pairwise([0, *sorted(cuts), len(text)])
                for i in self._encode_outside(text[start:end])
            ]
        return [i for i, is_one in zip(ids, control, strict=True) if not is_one]

    def _spells_unknown(self, text: str) -> bool:
        """Return whether text that yields the unknown token spells it, rather than being outside the vocabulary."""
        return any(form in shown for form in self._unknown for shown in self._forms(text))

    def _forms(self, text: str) -> tuple[str, str]:
        """Return a text unchanged and as normalised by the tokenizer, without space around it."""
        normalizer = cast(Any, self._tokenizer).backend_tokenizer.normalizer
        return text.strip(), (normalizer.normalize_str(text) if normalizer else text).strip(" \u2581")

    def _shown(self, token_ids: Sequence[int]) -> str:
        """Decode ids of outside text, without the unknown token (whose text contains "<")."""
        return self.decode([i for i in token_ids if i != self._unknown_id])
