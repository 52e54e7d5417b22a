"""Whether the indexes are whole, of this version, and find a passage that they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from evoseek.doctor.finding import Finding, fault, fine, refused, warning
from evoseek.doctor.patient import Patient, is_here
from evoseek.errors import EvoseekError
from evoseek.policy.load import load_tokenizer
from evoseek.policy.shape import read_config
from evoseek.policy.vocabulary import is_spelled
from evoseek.search.lexical import LexicalIndex, check_index
from evoseek.search.opening import open_built

_AMONG, _WORDS = 5, 12


def check_indexes(patient: Patient) -> Iterator[Finding]:
    """The index that is trained on, and the one that is evaluated on."""
    settings = patient.settings
    named = {"search.index": settings.search.index if settings.searches_index else "-"}
    named["evaluation.index"] = settings.evaluation.index or "-"
    for setting, directory in named.items():
        if directory != "-":
            place, own = Path(directory).absolute(), patient.own_index
            if own is not None and place == own.absolute() and not place.exists():
                yield warning(setting, f"The project's index {directory} is not built yet.", "Run `evoseek index`.")
                continue
            try:
                check_index(directory, setting=setting, engine=settings.search.name)
                yield _tried(Path(directory), settings.search.name, setting, settings.policy.model)
            except EvoseekError as error:
                yield refused(setting, error)


def _tried(directory: Path, engine: str, setting: str, model: str) -> Finding:
    """Checksums, and a search for the words of its first passage."""
    lexical = LexicalIndex.open(directory)
    first = next(lexical.passages(), None)
    if first is None:
        return fault(setting, f"{directory} holds no passage.", "Index documents that have text.")
    query = " ".join([first.title, *first.text.split()[:_WORDS]])
    found = asyncio.run(open_built(directory, engine).search([query], _AMONG))[0]
    words = f"{directory}: {len(lexical):,} passages, checksums right"
    if first.id not in [passage.id for passage in found] and first.text not in [passage.text for passage in found]:
        words = f"{words}, but searching ({engine}) for the words of the passage {first.id} does not find it."
        return fault(setting, words, "Build it again with `evoseek index`.")
    if _spelled(model, lexical):
        words = f"{words}, but the policy {model} would have to spell its words: it knows generated worlds alone."
        return warning(setting, words, "Give a language model (policy.model), or expect no more than a trial.")
    return fine(setting, f"{words}, a known passage is found")


def _spelled(model: str, index: LexicalIndex) -> bool:
    """Whether it is a tiny policy, to which the passages are letters."""
    if not is_here(model) or read_config(model).get("evoseek_prompts") != "tiny":
        return False
    return is_spelled(load_tokenizer(model), (passage.text for passage in index.passages()))
