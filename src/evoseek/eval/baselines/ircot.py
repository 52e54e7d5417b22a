"""IRCoT (Trivedi et al., arXiv 2212.10509): retrieval interleaved with the sentences of a chain of thought.

passages <- search(question)
repeat: sentence <- model(question, passages, thoughts); an answer ends it
        passages <- passages and search(sentence)
when no search is left: answer <- model(question, passages, thoughts)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from evoseek.types import Passage, StopReason, Trajectory

if TYPE_CHECKING:
    from evoseek.eval.baselines.attempt import Attempt

MOST_PASSAGES = 15  # as in the paper
_MARKUP = re.compile(r"<[^<>\n]{1,40}>")  # tags and control tokens
_SENTENCE = re.compile(
    r"\S.*?(?:(?<!\b[A-Z])(?<!\b[A-Z][a-z])[.!?](?=\s|\Z)|[。！？]|(?=\n))", re.DOTALL
)  # no initial, and no Dr. or St., ends one


class IRCoT:
    """Prompts: baseline_ircot for a sentence, baseline_ircot_answer at the end, both with `passages` and `thoughts`.

    Without examples, unlike the paper; and the model says in tags, not by "the answer is", that it is done.
    """

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:
        """A sentence and a search in turns, until the model answers or no search is left."""
        passages, thoughts, query = dict[str, Passage](), list[str](), attempt.question.text
        while (found := await attempt.retrieve(query)) is not None:
            new = [passage for passage in found if passage.id not in passages]
            passages |= {passage.id: passage for passage in new[: MOST_PASSAGES - len(passages)]}
            shown = {"passages": list(passages.values()), "thoughts": thoughts}
            step = await attempt.roll("baseline_ircot", shown, part="step", may_overflow=bool(thoughts))
            query = first_sentence(step.actions[-1].text, step.stop_reason)
            if step.answer is not None or not query:
                return step
            thoughts.append(query)
        shown = {"passages": list(passages.values()), "thoughts": thoughts}
        return await attempt.roll("baseline_ircot_answer", shown, may_overflow=bool(thoughts))


def first_sentence(text: str, reason: StopReason) -> str:
    """The first sentence after a block of thought, without markup; "" if there is none. A text without an end of a
    sentence is one, unless it was cut (`max_tokens`)."""
    said = _plain(text.rpartition("</think>")[2]) or _plain(text)
    found = _SENTENCE.match(said)
    return " ".join((found[0] if found else "" if reason is StopReason.MAX_TOKENS else said).split())


def _plain(text: str) -> str:
    return _MARKUP.sub(" ", text).strip()
