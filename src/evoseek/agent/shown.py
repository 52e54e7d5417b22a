"""An answer with its check, as text and as JSON values, and its cited sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rich.text import Text

from evoseek.agent.bound import Bound
from evoseek.agent.support import Support, found_passages, missing_words, spans
from evoseek.text.language import NOT_FOUND
from evoseek.text.scripts import without_citations
from evoseek.types import Passage, Trajectory

_NEAREST = 3  # documents that a refusal names
_SUPPORTS = {
    "words": "Passages about the question that contain these words (no more was checked): {}",
    "sentences": "Passages that have these sentences, or most of their words (no more was checked):",
    "topic": "Passages about the question (which need not hold the answer):",
    "judge": "Passages that support the answer, by the verdict of the judge:",
    "none": "Passages that support the answer:",
}


@dataclass(frozen=True, slots=True)
class Answered:
    """A rollout with its check. `refuses`: an unsupported answer is left out. The model did not get `dropped` earlier
    messages, but got `earlier`. `certainty` is the answer's (`agent.answer.certainty_of`; None: unknown). With a
    `bound`, an answer that is not certain enough is left out, too."""

    trajectory: Trajectory
    support: Support
    refuses: bool
    dropped: int = 0
    earlier: int = 0
    certainty: float | None = None
    bound: Bound | None = None

    @property
    def is_refused(self) -> bool:
        """Whether an answer is left out."""
        return self.trajectory.answer is not None and self.refuses and (not self.support.is_given or self._is_unsure)

    @property
    def _is_unsure(self) -> bool:
        return self.bound is not None and not self.bound.shows(self.certainty)

    @property
    def nearest(self) -> list[str]:
        """The labels of the documents that were found first, if no answer is shown."""
        first = dict[str, Passage]()
        for passage in found_passages(self.trajectory) if self.answer is None else ():
            first.setdefault(passage.document_id, passage)
        return [str(one["label"]) for one in citations([*first.values()][:_NEAREST])]

    @property
    def refusal(self) -> str:
        """What is said in place of an answer: the nearest documents, and which words of the question none of them
        has."""
        said, near, found = [NOT_FOUND], self.nearest, found_passages(self.trajectory)
        said += [f"Nearest: {'; '.join(near)}."] if near else []
        missing = missing_words(self.trajectory.question.text, found) if near else ()
        return " ".join([*said, *([f"None of what was found mentions: {', '.join(missing)}."] if missing else [])])

    @property
    def answer(self) -> str | None:
        """The answer; None if missing or refused. Of several sentences it has the supported ones, each with the numbers
        of its passages."""
        support, written = self.support, self.trajectory.answer
        if written is None or self.is_refused:
            return None
        if not support.sentences or (support.rule != "sentences" and written == without_citations(written)):
            return written
        kept = [one for one in support.sentences if one.is_supported or not self.refuses]
        return "".join(one.before + one.marked for one in kept).strip()

    @property
    def text(self) -> Text:
        """Return text for a terminal: the answer with its certainty, if known, the searches, and the supporting
        passages with their numbers, and in bold the words that were looked for. Without an answer: the model's output
        in every turn."""
        trajectory, support = self.trajectory, self.support
        if trajectory.answer is None:
            head = f"No answer ({trajectory.stop_reason})."
        else:
            head = self.refusal if self.is_refused else f"Answer: {self.answer}"
        if self.certainty is not None and not self.is_refused:
            head += f"  (sure {self.certainty:.2f}: the probability that the model gives its words)"
        left_out = sum(not one.is_supported for one in support.sentences)
        is_partial = support.rule == "sentences" and left_out and self.refuses and not self.is_refused
        note = [f"({left_out} of {len(support.sentences)} sentences are left out, which no passage supports.)"]
        lines = [head, *(note if is_partial else ()), "Searches:"]
        for number, result in enumerate(trajectory.results, start=1):
            titles = ", ".join(passage.title for passage in result.passages) or "nothing found"
            query = "; ".join(map(_argument, result.call.arguments.values()))
            lines.append(f"  {number}. {result.call.name}: {query}  ->  {titles}")
        lines += [] if trajectory.results else ["  none"]
        if trajectory.answer is None:
            lines.append("What the model wrote:")
            lines += [f"  {number}. {action.text.strip()}" for number, action in enumerate(trajectory.actions, start=1)]
            return Text("\n".join(lines if trajectory.actions else [*lines, "  nothing"]))
        if self.is_refused:
            found = "No passage that was found supports what the model answered. To see it, add --set"
            why = f"{found} support.unsupported=show"
            if self.support.is_given:
                why = f"The model is not sure of what it answered. {self.bound} To see it, add --set support.bound="
            return Text("\n".join([*lines, why]))
        text = Text("\n".join([*lines, _SUPPORTS[support.rule].format("; ".join(support.words))]))
        for p in merged(support.passages):
            words = [marked(part, spans(support.words, part)) for part in (p.title, p.text)]
            cited = f"\n    from {p.citation}{also(p)}" if p.file else ""
            marks = "".join(f"[{number}] " for number in self._numbers(p))
            text = Text.assemble(text, f"\n  {marks}[{p.id}] ", words[0], ": ", words[1], cited)
        return text if support.passages else text.append("\n  none")

    @property
    def json(self) -> dict[str, object]:
        """Return JSON values; `answer` is null if missing or refused, `certainty` then too, or if unknown. `spans` and
        `title_spans` of a passage are the character ranges of the words that were looked for in its text and title.
        `nearest` names the documents that were found, if no answer is shown."""
        trajectory, support, passages = self.trajectory, self.support, merged(self.support.passages)
        return {
            "question": trajectory.question.text,
            "answer": self.answer,
            "certainty": None if self.is_refused else self.certainty,
            "stop_reason": trajectory.stop_reason.value,
            "failure": trajectory.failure,
            "supported": support.is_given,
            "nearest": self.nearest,
            "rule": support.rule,
            "searches": [
                {
                    "tool": result.call.name,
                    "arguments": dict(result.call.arguments),
                    "found": [{"id": passage.id, "title": passage.title} for passage in result.passages],
                }
                for result in trajectory.results
            ],
            "words": list(support.words),
            "sentences": [
                {"text": one.text, "citations": list(one.numbers), "supported": one.is_supported}
                for one in support.sentences
            ],
            "support": [
                {
                    **one,
                    "numbers": self._numbers(p),
                    "spans": spans(support.words, p.text),
                    "title_spans": spans(support.words, p.title),
                }
                for one, p in zip(citations(passages), passages, strict=True)
            ],
            "written": [action.text for action in trajectory.actions],
        }

    def _numbers(self, passage: Passage) -> list[int]:
        """Return the answer's citation numbers of a passage, or of others at the same place."""
        cited = {number for one in self.support.sentences if one.is_supported for number in one.numbers}
        shown = self.trajectory.passages
        return sorted(number for number in cited if _place(shown[number - 1]) == _place(passage))


def marked(text: str, ranges: Sequence[Sequence[int]]) -> Text:
    """Show a text for a terminal, with these character ranges in bold."""
    shown = Text(text)
    for start, end in ranges:
        shown.stylize("bold underline", start, end)
    return shown


def citation(passage: Passage) -> dict[str, object]:
    """Return a passage with its place and the places of its copies."""
    copies = {"copies": [{"id": copy.id, **copy.place} for copy in passage.copies]} if passage.copies else {}
    return {"id": passage.id, "title": passage.title, "text": passage.text, **passage.place, **copies}


def citations(passages: Sequence[Passage]) -> list[dict[str, object]]:
    """Return passages with their places, each with a unique `label` for readers: its title, page and heading, and if
    these are alike also its file, and then its id."""
    labels = [", ".join(dict.fromkeys(filter(None, (p.title, p.page_name, p.heading)))) for p in passages]
    for more in ([p.file or p.document_id for p in passages], [p.id for p in passages]):
        alike = Counter(labels)
        labels = [f"{label} ({name})" if alike[label] > 1 else label for label, name in zip(labels, more, strict=True)]
    return [{**citation(p), "label": label} for p, label in zip(passages, labels, strict=True)]


def also(passage: Passage) -> str:
    """Name the copies of a passage, as in ` (also in a.md, b.md)`; "" if it has none."""
    places = dict.fromkeys(copy.citation for copy in passage.copies)
    return f" (also in {'; '.join(places)})" if places else ""


def merged(passages: Iterable[Passage]) -> list[Passage]:
    """Join passages of the same place (file, page and heading of a document), with id and place of the first one found,
    and all texts in the document's order."""
    places: dict[object, list[Passage]] = {}
    for passage in passages:
        places.setdefault(_place(passage), []).append(passage)
    texts = [{p.id: p.text for p in sorted(alike, key=lambda p: p.start)}.values() for alike in places.values()]
    return [replace(alike[0], text="\n\n".join(own)) for alike, own in zip(places.values(), texts, strict=True)]


def _place(passage: Passage) -> object:
    return (passage.document_id, *passage.place.items())


def _argument(value: object) -> str:
    return ", ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)
