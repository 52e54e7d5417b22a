"""Retrieval-augmented generation (Lewis et al., arXiv 2005.11401): one search for the question itself, then the
answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from evoseek.eval.baselines.attempt import Attempt
    from evoseek.types import Trajectory


class RAG:
    """Searches for the question and shows the passages with it. Prompt: baseline_rag, with `passages`."""

    searches: ClassVar[bool] = True

    async def __call__(self, attempt: Attempt) -> Trajectory:
        """One search, one prompt."""
        passages = await attempt.retrieve(attempt.question.text)
        return await attempt.roll("baseline_rag", {"passages": passages or ()})
