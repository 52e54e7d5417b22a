"""Recall of the evidence: lexical, dense and hybrid search over real passages, for questions that name their evidence.

    python bench/retrieval_quality.py FOLDER [--words 100] [--questions dev.jsonl]

FOLDER has corpus.jsonl ({"id", "title", "text"}) and a file of questions ({"question", "hops", "evidence": [titles]}).
Such a folder can be made from 2WikiMultihopQA: its corpus of introductions, and its questions with the titles of their
supporting facts. A page counts as found if any of its passages is among the first k.

One-hop questions: recall of their page. Questions of more hops, which name only the first page or both: recall of the
first page, and of all. The interval is Wilson's, of 95 %.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

from evoseek.corpus.read_report import ReadReport
from evoseek.search.analyser import Analyser
from evoseek.search.dense import DenseIndex, HybridIndex
from evoseek.search.encoders import make_encoder
from evoseek.search.lexical import LexicalIndex
from evoseek.search.sources import CorpusPassages
from evoseek.types import Passage

ENCODERS = ("static", "minilm")
CUTS = (3, 10)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    z, share = 1.959964, hits / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return middle - half, middle + half


def shares(found: Sequence[Sequence[Passage]], questions: Sequence[dict], k: int) -> dict[str, list[bool]]:
    """For each kind of question, and each of them, whether its evidence is among the first k passages."""
    kinds: dict[str, list[bool]] = {"1 hop": [], "2 hops, first page": [], "2 hops, all pages": []}
    for passages, question in zip(found, questions, strict=True):
        titles, evidence = {passage.title for passage in passages[:k]}, question["evidence"]
        if question["hops"] == 1:
            kinds["1 hop"].append(evidence[0] in titles)
        else:
            kinds["2 hops, first page"].append(evidence[0] in titles)
            kinds["2 hops, all pages"].append(titles.issuperset(evidence))
    return {kind: hits for kind, hits in kinds.items() if hits}


def report(name: str, found: Sequence[Sequence[Passage]], questions: Sequence[dict]) -> None:
    for k in CUTS:
        for kind, hits in shares(found, questions, k).items():
            low, high = wilson(sum(hits), len(hits))
            share = sum(hits) / len(hits)
            print(f"{name:<16} @{k:<3} {kind:<20} {share:.3f} [{low:.3f}, {high:.3f}]  n = {len(hits)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--words", type=int, default=100, help="words of a passage, at most")
    parser.add_argument("--questions", default="dev.jsonl")
    parser.add_argument("--stemming", choices=("none", "english"), default="none")
    parser.add_argument("--encoders", nargs="*", default=ENCODERS)
    options = parser.parse_args()
    questions = [json.loads(line) for line in (options.folder / options.questions).read_text().splitlines()]
    report = ReadReport()
    corpus = CorpusPassages(options.folder / "corpus.jsonl", report=report, max_words=options.words)
    passages = list(corpus.read())
    texts, k = [question["question"] for question in questions], max(CUTS)
    print(f"{report.read:,} documents, {len(passages):,} passages of at most {options.words} words")
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
