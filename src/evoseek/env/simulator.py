"""The prompt of a simulated search engine, and the reply that it should give."""

from __future__ import annotations

from collections.abc import Sequence

from evoseek.env.prompts import PromptSet
from evoseek.types import Message


class SimulatorPrompts:
    """A `SimulatorPrompt` from the files simulator_useful.jinja and simulator_noisy.jinja of a prompt set."""

    def __init__(self, prompts: PromptSet) -> None:
        self._useful, self._noisy = prompts["simulator_useful"], prompts["simulator_noisy"]

    def __call__(
        self,
        *,
        question: str,
        answers: Sequence[str],
        query: str,
        earlier: Sequence[str],
        useful: bool,
        documents: int,
        max_words: int,
    ) -> list[Message]:
        """One user message."""
        template = self._useful if useful else self._noisy
        values = {"question": question, "answers": tuple(answers), "query": query, "earlier": tuple(earlier)}
        return [Message("user", template.marked(**values, documents=documents, max_words=max_words))]


def simulator_reply(texts: Sequence[str]) -> str:
    """The reply that holds these documents, each in one line (see `search.simulated.parse_documents`)."""
    return "\n".join(f"Document {number}: {' '.join(text.split())}" for number, text in enumerate(texts, start=1))
