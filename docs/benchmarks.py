"""Two benchmarks with forms of their own: their questions as a question file, and samples as their scorers read them.

    python benchmarks.py browsecomp-plus browsecomp_plus_decrypted.jsonl qrel_evidence.txt > questions.jsonl
    python benchmarks.py fanoutqa fanout-final-dev.json > questions.jsonl      # in the package fanoutqa, folder data
    evoseek eval MODEL --on browsecomp-plus --data questions.jsonl --index INDEX --out results
    python benchmarks.py browsecomp-plus-runs results runs
    python benchmarks.py fanoutqa-answers results answers.json

BrowseComp-Plus (arXiv 2508.06600) judges a folder of runs. FanOutQA (arXiv 2402.14116) scores `{"id", "answer"}` with
`fanoutqa.eval.evaluate(load_dev(), answers)`; the reward `fan_out`, its loose accuracy, needs the metadata `reference`.
"""

import json
import re
import sys
from pathlib import Path


def browsecomp_plus(queries, qrels):
    """The question rows of the decrypted queries, with the documents that the relevance judgements call evidence."""
    relevant = {}
    for query, _, document, relevance in (
        line.split() for line in Path(qrels).read_text().splitlines() if line.strip()
    ):
        if int(relevance):
            relevant.setdefault(query, []).append(document)
    for row in map(json.loads, Path(queries).read_text(encoding="utf-8").splitlines()):
        key = str(row["query_id"])
        metadata = {"evidence": relevant[key]} if key in relevant else {}
        yield {"id": key, "question": row["query"], "golden_answers": [row["answer"]], "metadata": metadata}


def browsecomp_plus_runs(results, folder):
    """Write a run file for the first sample of each query."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for sample in first_samples(results):
        calls = [
            {"type": "tool_call", "tool_name": "search", "arguments": json.dumps({"query": query}), "output": None}
            for query in sample["queries"]
        ]
        answered = sample["answer"] is not None
        text = {"type": "output_text", "tool_name": None, "arguments": None, "output": sample["answer"]}
        run = {
            "query_id": sample["question"],
            "tool_call_counts": {"search": len(calls)},
            "status": "completed" if answered else "incomplete",
            "retrieved_docids": sample["documents"],
            "result": [*calls, *([text] if answered else [])],
        }
        name = re.sub(r"[^\w.-]", "_", sample["question"])
        (Path(folder) / f"run_{name}.json").write_text(json.dumps(run, indent=1), encoding="utf-8")


def fanoutqa(file):
    """The question rows of the package's file. The golden answer is the whole reference as a text."""
    for row in json.loads(Path(file).read_text(encoding="utf-8")):
        pages = {page["pageid"]: page["title"] for page in evidence(row["decomposition"])}
        metadata = {"reference": strings(row["answer"]), "evidence": list(pages.values()), "hops": len(pages)}
        yield {
            "id": row["id"],
            "question": row["question"],
            "golden_answers": [text(row["answer"])],
            "metadata": metadata,
        }


def evidence(parts):
    """The pages that the parts of a decomposition need."""
    for part in parts:
        yield from [part["evidence"]] if part["evidence"] else []
        yield from evidence(part["decomposition"])


def strings(reference):
    """The strings of a reference: keys and values of an object, items of a list, yes and no for booleans."""
    if isinstance(reference, dict):
        return [text for item in (*reference.keys(), *reference.values()) for text in strings(item)]
    if isinstance(reference, list):
        return [text for item in reference for text in strings(item)]
    return [{True: "yes", False: "no"}[reference] if isinstance(reference, bool) else str(reference)]


def text(reference):
    """A reference as one text."""
    if isinstance(reference, dict):
        return ", ".join(f"{key}: {text(value)}" for key, value in reference.items())
    return ", ".join(map(text, reference)) if isinstance(reference, list) else strings(reference)[0]


def fanoutqa_answers(results, file):
    """Write the first answer to each question, as FanOutQA's own scorer reads it."""
    answers = [{"id": one["question"], "answer": one["answer"]} for one in first_samples(results) if one["answer"]]
    Path(file).write_text(json.dumps(answers, indent=1), encoding="utf-8")


def first_samples(results):
    """The first sample of each question in a folder that `evoseek eval --out` wrote; of repeated ones the last."""
    samples = map(json.loads, (Path(results) / "samples.jsonl").read_text(encoding="utf-8").splitlines())
    return list({sample["question"]: sample for sample in samples if sample["number"] == 0}.values())


COMMANDS = {
    "browsecomp-plus": browsecomp_plus,
    "browsecomp-plus-runs": browsecomp_plus_runs,
    "fanoutqa": fanoutqa,
    "fanoutqa-answers": fanoutqa_answers,
}

if __name__ == "__main__":
    for row in COMMANDS[sys.argv[1]](*sys.argv[2:]) or ():
        print(json.dumps(row, ensure_ascii=False))
