"""Single tokens as text, as they stand in the middle of a text."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer


class TokenTexts:
    """The texts of the token ids that it was asked for, by a tokenizer's file; none without one.

    A token that is a part of a character has the replacement character as its text.
    """

    def __init__(self, path: Path | None, notes: list[str]) -> None:
        self.texts: dict[int, str] = {}
        self._tokenizer: Tokenizer | None = None
        if path is None:
            notes.append("The run holds no tokenizer, so tokens are shown by their ids.")
            return
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            notes.append(f"{path} cannot be read as a tokenizer ({error}), so tokens are shown by their ids.")
            return
        anchor = self._tokenizer.encode("a", add_special_tokens=False).ids[-1:] or [0]
        self._before = anchor
        self._start = self._tokenizer.decode(anchor, skip_special_tokens=False)

    def add(self, ids: list[int]) -> None:
        """Find the texts of these ids. Raises TypeError or OverflowError if one is no id."""
        if self._tokenizer is None:
            return
        for token in {*ids} - self.texts.keys():
            text = self._tokenizer.decode([*self._before, token], skip_special_tokens=False)
            self.texts[token] = text.removeprefix(self._start)
