"""Recall of the evidence: lexical, dense and hybrid search over real passages, for questions that name their evidence.

    python bench/retrieval_quality.py DOCUMENTS QUESTIONS [--words 100] [--stemming english] [--encoders static minilm]

DOCUMENTS is a folder or file that `evoseek index` reads, QUESTIONS are JSON lines: `question`, `golden_answers`,
`hops`, and `evidence`: titles, or names of files. 2WikiMultihopQA gives such a corpus, of its introductions, and such
questions, with the titles of their supporting facts; `bench/sqlite` and `bench/postgres` have questions about pages of
a manual.

One-hop questions: whether a passage of their page is among the first k, and one that holds a golden answer. Questions
of more hops, which name only the first page or both: whether the first page is, and whether all are. The interval is
Wilson's, of 95 %.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

from evoseek.documents.read_report import ReadReport
from evoseek.search.analyser import Analyser
from evoseek.search.dense import DenseIndex, HybridIndex
from evoseek.search.encoders import make_encoder
from evoseek.search.lexical import LexicalIndex
from evoseek.search.sources import CorpusPassages
from evoseek.text.normalization import normalise
from evoseek.types import Passage

ENCODERS = ("static", "minilm")
CUTS = (1, 2, 3, 10)
KINDS = ("1 hop", "1 hop, answer", "2 hops, first page", "2 hops, all pages")


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    z, share = 1.959964, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - half, middle + half


def shares(found: Sequence[Sequence[Passage]], questions: Sequence[dict], k: int) -> dict[str, list[bool]]:
    """For each kind of question, and each of them, whether its evidence is among the first k passages."""
    kinds: dict[str, list[bool]] = {name: [] for name in KINDS}
    for passages, question in zip(found, questions, strict=True):
        pages = [[p for p in passages[:k] if name in (p.title, p.document_id)] for name in question["evidence"]]
        if question["hops"] == 1:
            kinds["1 hop"].append(any(pages))
            held = [f" {normalise(passage.contents)} " for page in pages for passage in page]
            answers = [f" {normalise(answer)} " for answer in question["golden_answers"]]
            kinds["1 hop, answer"].append(any(answer in text for answer in answers for text in held))
        else:
            kinds["2 hops, first page"].append(bool(pages[0]))
            kinds["2 hops, all pages"].append(all(pages))
    return {kind: hits for kind, hits in kinds.items() if hits}


def report(name: str, found: Sequence[Sequence[Passage]], questions: Sequence[dict]) -> None:
    for k in CUTS:
        for kind, hits in shares(found, questions, k).items():
            low, high = wilson(sum(hits), len(hits))
            share = sum(hits) / len(hits)
            print(f"{name:<16} @{k:<3} {kind:<20} {share:.3f} [{low:.3f}, {high:.3f}]  n = {len(hits)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--words", type=int, default=100, help="words of a passage, at most")
    parser.add_argument("--stemming", choices=("none", "english"), default="none")
    parser.add_argument("--encoders", nargs="*", default=ENCODERS)
    options = parser.parse_args()
    rows = map(json.loads, options.questions.read_text().splitlines())
    questions = [row for row in ({**row.get("metadata", {}), **row} for row in rows) if row.get("answerable", True)]
    read = ReadReport()
    passages = list(CorpusPassages(options.documents, report=read, max_words=options.words).read())
    texts, k = [question["question"] for question in questions], max(CUTS)
    print(f"{read.read:,} documents, {len(passages):,} passages of at most {options.words} words")
    with TemporaryDirectory() as folder:
        analyser = Analyser(options.stemming)
        lexical = LexicalIndex.build(Path(folder, "lexical"), passages, analyser=analyser)
        report("lexical", lexical.find_all(texts, k), questions)
        for name in options.encoders:
            index = DenseIndex.build(Path(folder, name), passages, make_encoder(name), analyser=analyser)
            report(name, index.find_all(texts, k), questions)
            report(f"hybrid {name}", HybridIndex.open(index.directory).find_all(texts, k), questions)


if __name__ == "__main__":
    main()
