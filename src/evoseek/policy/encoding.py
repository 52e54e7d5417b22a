"""Text to token ids, such that text from outside stays text.

Two kinds of text meet in a prompt. *Template* text is written by us, by the user's prompt files or by the model's chat
template: its control strings become control tokens. *Outside* text (questions, passages, tool results) may hold anything:
no control token can come of it, and no tag of the format can be opened or closed by it.

A string is outside text unless it says otherwise: `trusted` wraps template text in marks that no outside text can forge,
because they hold a key drawn anew by every process. The marks never reach a tokenizer.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Sequence

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerBase

from evoseek.errors import PolicyError

_KEY = secrets.token_hex(8)
_START, _END = f"\ufdd0{_KEY}\ufdd1", f"\ufdd2{_KEY}\ufdd1"  # U+FDD0.. are "noncharacters", for internal use
_TRUSTED = re.compile(f"{_START}(.*?){_END}", re.DOTALL)


def trusted(text: str) -> str:
    """Mark text as template text, but for what is wrapped by `outside` in it. Not for text that others can influence."""
    return f"{_START}{text}{_END}"


def outside(value: object) -> str:
    """A value's text as outside text, to be put into text that will be `trusted`."""
    return f"{_END}{plain(str(value))}{_START}"


def plain(text: str) -> str:
    """The text without marks, for readers that are no tokenizer (a chat endpoint, a log)."""
    return text.replace(_START, "").replace(_END, "")


def split_trusted(text: str) -> Iterator[tuple[bool, str]]:
    """Cut marked text into (is template text, piece), empty pieces left out."""
    for index, piece in enumerate(_TRUSTED.split(text)):
        if piece := plain(piece):
            yield index % 2 == 1, piece


def well_formed(text: str) -> str:
    """The text with lone surrogates (which UTF-8 and tokenizers refuse) replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_control(token: AddedToken) -> bool:
    """Whether an added token means something to the model that mere text must not be able to say.

    All special tokens do, and all others but white space and single characters, which only extend a vocabulary.
    """
    return token.special or (len(token.content) > 1 and bool(token.content.strip(" \t\r\n\u2581")))


class Encoder:
    """Encodes both kinds of text for one tokenizer; `tags` are the names that outside text must not open or close.

    Outside text goes through a copy of the tokenizer that knows no control token. Where the copy's plain vocabulary still
    yields the id of one, the text is cut in the middle of it, which also holds across the tokenizer's normalisation
    (letter case, accents, widths), since it is the ids that are looked at. The one special id that may come of outside text is
    the unknown token's: it says "some text" and nothing else.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tags: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._copy = _without_control_tokens(tokenizer)
        added: dict[int, AddedToken] = tokenizer.added_tokens_decoder
        control = {token_id for token_id, token in added.items() if is_control(token)} | set(tokenizer.all_special_ids)
        if tokenizer.unk_token_id not in (tokenizer.eos_token_id, tokenizer.bos_token_id):
            control.discard(tokenizer.unk_token_id)
        self.control_ids = frozenset(control)
        self._tag = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(map(re.escape, tags))}))", re.IGNORECASE) if tags else None

    def template(self, text: str) -> tuple[int, ...]:
        """Ids of template text: control strings become control tokens; nothing is added around it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False)) if text else ()

    def outside(self, text: str) -> tuple[int, ...]:
        """Ids of outside text."""
        text = plain(well_formed(text))
        if self._tag is None:
            return tuple(self._bare(text))
        ids = self._bare(self._tag.sub("&lt;", text))
        if self._tag.search(self.decode(ids)):  # a tag appears only after normalisation: be strict with every "<"
            openers = {character for character in set(text) if "<" in self.decode(self._bare(character))}
            ids = self._bare("".join("&lt;" if character in openers else character for character in text))
        return tuple(ids)

    def marked(self, text: str) -> tuple[int, ...]:
        """Ids of text in which template text is marked by `trusted`."""
        pieces = split_trusted(text)
        return tuple(i for is_template, piece in pieces for i in (self.template if is_template else self.outside)(piece))

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, control tokens included."""
        return str(
            self._tokenizer.decode(list(token_ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        )

    def _bare(self, text: str) -> list[int]:
        encoding = self._copy.encode(text, add_special_tokens=False)
        for token_id, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if token_id in self.control_ids and end - start > 1:
                middle = (start + end) // 2
                return self._bare(text[:middle]) + self._bare(text[middle:])
        return [token_id for token_id in encoding.ids if token_id not in self.control_ids]


def _without_control_tokens(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """A copy of the tokenizer's engine that turns no string into a control token."""
    engine = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(engine, Tokenizer):
        raise PolicyError(
            f"The tokenizer is a {type(tokenizer).__name__}, which is not backed by the tokenizers library, so text from "
            "outside cannot be kept apart from control tokens. Use a model whose directory has a tokenizer.json "
            "(AutoTokenizer and save_pretrained make one for nearly every model)."
        )
    parts = json.loads(engine.to_str())
    copy = Tokenizer.from_str(
        json.dumps({**parts, "added_tokens": [], "post_processor": None, "truncation": None, "padding": None})
    )
    added: dict[int, AddedToken] = tokenizer.added_tokens_decoder
    # Added text tokens stay, where the vocabulary itself has their ids.
    copy.add_tokens([t for i, t in added.items() if not is_control(t) and copy.token_to_id(t.content) == i])
    return copy
