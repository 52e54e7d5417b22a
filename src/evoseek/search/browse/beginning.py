"""The beginning of a page, for policies that are too small for a reading agent."""

from __future__ import annotations

from dataclasses import dataclass

from evoseek.search.browse.segments import beginning_of
from evoseek.types import Page


@dataclass(frozen=True, slots=True)
class PageBeginning:
    """A `PageReader`: at most the first `max_words` words of a page, to the end of a sentence, whatever the task."""

    max_words: int

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """The beginning of the page's text."""
        return beginning_of(page.text, self.max_words)
