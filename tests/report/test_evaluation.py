"""Tables and JSON of results."""

import json
from dataclasses import replace

from evoseek.eval.results import Results
from evoseek.eval.sample import Sample
from evoseek.report.evaluation import grids, latex, markdown, note, results_json


def made(*invalid):
    samples = tuple(
        Sample(
            f"q_{n}",
            0,
            "",
            {} if n in invalid else {"exact_match": float(n % 2), "f1": 0.5},
            "tool_failed" if n in invalid else "answered",
            hops=1,
            invalid="tool_failed" if n in invalid else None,
        )
        for n in range(4)
    )
    return Results("exact_match", 4, 1, samples)


def test_the_same_samples_give_the_same_text_and_the_declared_metric_comes_first():
    found = results_json(made(), {"model": "m"})
    assert json.dumps(found) == json.dumps(results_json(made(), {"model": "m"}))
    assert (found["final"], found["mean"], found["n"], list(found["scores"])) == (True, 0.5, 4, ["exact_match", "f1"])
    assert found["by"]["hops"]["f1"]["1"]["mean"] == 0.5
    assert found["cost"]["searches"] == {"mean": 0.0, "total": 0.0, "n": 4}
    assert "seconds" not in json.dumps(found)


def test_invalid_items_are_listed_and_the_result_is_not_final():
    found = results_json(made(3), {})
    assert (found["final"], found["mean"], found["n_invalid"]) == (False, 0.25, 1)
    assert found["invalid"] == [{"question": "q_3", "sample": 0, "reason": "tool_failed", "detail": ""}]
    assert "Not final: 1 of 4 samples are Invalid and count as wrong: q_3/0 (tool_failed)." in note(made(3))
    assert note(made()) is None


def test_refusals_are_a_table_with_a_column_for_the_unanswerable_questions():
    results = made()
    some = tuple(replace(one, answerable=n < 3, answer="x" if n < 2 else None) for n, one in enumerate(results.samples))
    results = replace(results, samples=some)
    shown = markdown(grids(results, "t"), note(results))
    assert "|  | answerable questions | unanswerable questions |" in shown
    assert "| refused | 0.333 [0.061, 0.792] (n=3) | 1.000 [0.207, 1.000] (n=1) |" in shown
    assert "1 of 4 questions are marked as unanswerable" in shown
    assert results_json(results, {})["answers"]["unanswerable"]["refused"]["mean"] == 1.0


def test_metrics_that_papers_define_differently_are_explained():
    names = ("guarded_substring_match", "substring_match", "f1", "set_f1")
    samples = tuple(replace(one, scores=dict.fromkeys(names, 1.0)) for one in made().samples)
    said = note(Results("substring_match", 4, 1, samples))
    assert said.startswith("subEM: a golden answer stands anywhere in the answer")
    assert "guarded subEM: as whole words, in an answer at most 10 words longer than it." in said
    assert said.endswith("set F1: F1 over the sets of words of both, articles kept.")


def test_markdown_and_latex_hold_every_number():
    tables = grids(made(3), "tiny_1 | greedy")
    shown, tex = markdown(tables, note(made(3))), latex(tables, note(made(3)))
    assert "| EM | 0.250 [0.046, 0.699] (n=4, 1 invalid) |" in shown
    assert "**tiny_1 | greedy**" in shown
    assert "Not final" in shown
    assert r"EM & 0.250 [0.046, 0.699] (n=4, 1 invalid) \\" in tex
    assert r"tool\_failed & 0.000" in tex
    assert tex.count(r"\begin{tabular}{ll}") + tex.count(r"\begin{tabular}{lll}") == tex.count(r"\end{tabular}")


def test_money_is_in_every_form_if_a_price_is_known():
    """.25 for each of four samples."""
    results = made()
    paid = replace(results, samples=tuple(replace(one, money={"asked": 0.25}) for one in results.samples))
    assert results_json(paid, {})["money"] == {"asked": {"mean": 0.25, "total": 1.0, "n": 4}}
    assert "| asked | 0.250000 | 1.0000 | 4 |" in markdown(grids(paid, "t"), None)
    assert r"asked & 0.250000 & 1.0000 & 4 \\" in latex(grids(paid, "t"), None)
    assert "money" not in results_json(results, {})
    assert "Money" not in markdown(grids(results, "t"), None)
