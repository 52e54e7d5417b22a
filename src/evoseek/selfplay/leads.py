"""How far a corpus can be searched backwards from an answer.

    search for the answer -> a passage about something else that mentions it -> search for that passage's title -> ...

A proposer that has to make more searches than there are such steps could only invent something (Search Self-play leaves
open how answers and numbers of searches are matched).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evoseek.corpus.answers import TitleFinder
from evoseek.types import Passage


@dataclass(frozen=True, slots=True)
class Lead:
    """An answer, and the number of successive searches that lead away from it."""

    answer: str
    searches: int


def follow_back(answer: str, find: Callable[[str], Sequence[Passage]], most: int) -> Lead:
    """Follow each time the first passage found that mentions what was searched for, as whole words, and is about
    something new, at most `most` times. `find` gives a query's best passages."""
    seen = [answer.casefold()]
    while len(seen) <= most:
        sought = seen[-1]
        mentions = TitleFinder([sought])
        titles = (passage.title.casefold() for passage in find(sought) if mentions(passage.text))
        new = next((title for title in titles if title not in seen), None)
        if new is None:
            break
        seen.append(new)
    return Lead(answer, len(seen) - 1)
