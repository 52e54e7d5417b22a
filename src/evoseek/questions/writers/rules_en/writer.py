"""The writer `rules-en`: questions about one document, and questions that join two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evoseek.questions.writers.base import Draft, Hop, QuestionWriterSettings
from evoseek.questions.writers.rules_en.chains import chains
from evoseek.questions.writers.rules_en.clozes import Cloze, clozes, is_natural
from evoseek.types import Passage


class RulesEn:
    """Writes questions by rules from English sentences about the subjects that the documents' titles name. It needs no
    model, and the same documents give the same questions."""

    Settings = QuestionWriterSettings

    @classmethod
    def build(cls, settings: QuestionWriterSettings, context: object) -> RulesEn:
        return cls()

    async def write(self, documents: Sequence[Sequence[Passage]], number: int) -> list[Draft]:
        """Write all questions that the sentences yield."""
        made = [list(clozes(passages)) for passages in documents]
        drafts = [Draft(one.question, one.kind, (_hop(one),), not one.is_natural) for found in made for one in found]
        for chain in chains(made):
            hops = (_hop(chain.first), replace(_hop(chain.second), query=chain.second.subject))
            drafts.append(Draft(chain.question, "chain", hops, not is_natural(chain.question)))
        return drafts


def _hop(cloze: Cloze) -> Hop:
    return Hop(cloze.question, cloze.answer, cloze.evidence, cloze.query, f"{cloze.before} {cloze.after}")
