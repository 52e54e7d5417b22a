"""Reading a page on behalf of the policy: its beginning, or by a reading agent (DeepResearcher, arXiv 2504.03160,
section 3.2).

The agent is a language model. It gets the page segment by segment, each with the task and its own notes so far. It adds
what matters to the notes, and says whether to read on. The policy sees only the notes of the page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from evoseek.errors import ReplyError
from evoseek.protocols import Chat
from evoseek.rollout.prompts import PromptTemplate
from evoseek.types import Message, Page

FORM: Mapping[str, object] = {
    "type": "object",
    "properties": {"relevant": {"type": "string"}, "read_on": {"type": "boolean"}},
    "required": ["relevant", "read_on"],
    "additionalProperties": False,
}
TITLE_WORDS = 30
DRESS = re.compile(r"\A\s*<think>.*?</think>|^```\w*[ \t]*$", re.DOTALL | re.MULTILINE)
"""What models put around a reply: reasoning, and the fences of a code block."""


@dataclass(slots=True)
class ReadingAgent:
    """A `PageReader`. It returns its memory: the notes on all segments, of at most `memory_words` words.

    Each of the first `max_segments` segments of `segment_words` words is read once, in order; the published loop can
    re-read the last one indefinitely. Reading ends earlier when the model says so or the memory is full. If the first
    `skip_after` segments gave nothing, the page is skipped. If a reply is cut or cannot be parsed, the model is called
    once more. `counts` has `pages`, `segments`, `skipped` and `repeated` (second replies).
    """

    chat: Chat
    template: PromptTemplate
    segment_words: int = 800
    memory_words: int = 400
    max_segments: int = 8
    skip_after: int = 2
    counts: Counter[str] = field(default_factory=Counter[str])

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """Return the memory after reading; "" for a skipped page. Raises ToolError."""
        memory, title = "", beginning_of(page.title, TITLE_WORDS)
        self.counts["pages"] += 1
        segments = islice(segments_of(page.text, self.segment_words), self.max_segments)
        for number, segment in enumerate(segments, start=1):
            text = self.template.marked(task=task, title=title, memory=memory, segment=segment)
            note, reads_on = await self._note([Message("user", text)], f"{key}/segment-{number}")
            kept = beginning_of(note, self.memory_words - count_words(memory))
            memory = f"{memory}\n{kept}".strip()
            if number == self.skip_after and not memory:
                self.counts["skipped"] += 1
                return ""
            if not reads_on or kept != note or count_words(memory) == self.memory_words:
                break
        return memory

    async def _note(self, messages: list[Message], key: str) -> tuple[str, bool]:
        self.counts["segments"] += 1
        try:
            return parse_note(await self.chat.chat(messages, key=key, form=FORM))
        except ReplyError:
            self.counts["repeated"] += 1
        return parse_note(await self.chat.chat(messages, key=f"{key}/again", form=FORM))


def parse_note(reply: str) -> tuple[str, bool]:
    """Return what a segment adds to the memory, in one line, and whether to read on.

    The reply must be {"relevant": "...", "read_on": true} (or false); a fence around it and reasoning before it are
    ignored. Raises ReplyError for any other reply, such as another key, a repeated key or words around the object.
    """
    try:
        pairs: Any = json.loads(DRESS.sub("", reply), object_pairs_hook=tuple)
        fields: dict[str, Any] = dict(pairs) if isinstance(pairs, tuple) and len(pairs) == 2 else {}
    except (ValueError, RecursionError):
        fields = {}
    relevant, read_on = fields.get("relevant"), fields.get("read_on")
    if not (isinstance(relevant, str) and isinstance(read_on, bool)):
        shown = reply if len(reply) <= 200 else f"{reply[:200]}..."
        raise ReplyError(
            f"The reading agent replied {shown!r}. Expected the object "
            '{"relevant": "...", "read_on": true} (or false), and nothing else. Ask for that form in reading.jinja, or '
            "use another model."
        )
    return " ".join(relevant.split()), read_on


@dataclass(frozen=True, slots=True)
class PageBeginning:
    """A `PageReader` of at most the first `max_words` words of a page, to the end of a sentence, for any task."""

    max_words: int

    async def read(self, page: Page, *, task: str, key: str) -> str:
        return beginning_of(page.text, self.max_words)


_WORD = re.compile(r"\S{1,12}\s*")  # longer words count as several, so that a bound on words also bounds characters
_END = re.compile(r"""[.!?]["'\u201d\u2019)\]]*\s+\Z|[。！？]\s*\Z|\n\s*\Z""")  # of a sentence, line or paragraph


def segments_of(text: str, max_words: int) -> Iterator[str]:
    """Cut a text into segments of at most `max_words` words, in order, losing only white space between them.

    A segment ends with the last sentence or line that ends in its second half, or else with a word. Every 12 characters
    of a word count as a word, since hostile text and some scripts have no spaces.
    """
    rest, words = (found[0] for found in _WORD.finditer(text.strip())), list[str]()
    while words := [*words, *islice(rest, max_words + 1 - len(words))]:  # one more than fits, if there is one
        end = max_words
        if end < len(words):
            whole = (i for i in range(end, max_words // 2, -1) if _END.search(words[i - 1]))
            end = next(whole, end)
        yield "".join(words[:end]).rstrip()
        words = words[end:]


def beginning_of(text: str, max_words: int) -> str:
    """Return the first segment of a text, or all of a short text."""
    return next(segments_of(text, max_words), "")


def count_words(text: str) -> int:
    """Return the number of words of a text, as in `segments_of`."""
    return len(_WORD.findall(text))
