"""Tables and JSON of results."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from evoseek.eval.draw import Sample
from evoseek.eval.results import Results, Score
from evoseek.eval.statistics import Interval, wilson_interval
from evoseek.eval.tables import (
    Grid,
    grids,
    held_out_score,
    markdown,
    note,
    results_json,
    score_grid,
    score_text,
    terminal,
)
from evoseek.text.printable import printable
from evoseek.text.progress import CountProgress
from evoseek.training.loop import StepProgress
from evoseek.training.train import TrainingProgress, curve


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
    some = tuple(replace(one, answerable=n < 3, answer="x" if n < 2 else "") for n, one in enumerate(results.samples))
    results = replace(results, samples=some)
    shown = markdown(grids(results, "t"), note(results))
    assert "|  | answerable questions | unanswerable questions |" in shown
    assert "| refused | 0.333 [0.061, 0.792] (n=3) | 1.000 [0.207, 1.000] (n=1) |" in shown
    assert "1 of 4 questions are marked as unanswerable" in shown
    assert results_json(results, {})["answers"]["unanswerable"]["refused"]["mean"] == 1.0


def test_the_bounds_on_wrong_answers_are_a_table():
    """60 supported answers of 90, all right, promise 5 % (0.95^60 = 0.046); 59 and a wrong one 10 %, but not 5 %."""
    one = replace(made().samples[1], supported=True, certainty=0.5)
    samples = [replace(one, question=f"q{n}", supported=n < 60, certainty=0.9 - n / 1000) for n in range(90)]
    shown = markdown(grids(Results("exact_match", 90, 1, tuple(samples)), "t"), None)
    assert "| at most | certainty | shown | wrong of these |\n|---|---|---|---|" in shown.replace(" --- ", "---")
    assert "| 5% | any | 60 of 90 | 0 of 60 |" in shown
    samples[59] = replace(samples[59], scores={"exact_match": 0.0, "f1": 0.0})
    results = Results("exact_match", 90, 1, tuple(samples))
    assert "| 5% | not promised | needs 59 shown, all right |  |\n| 10% | any | 60 of 90 | 1 of 60 |" in markdown(
        grids(results, "t"), None
    )
    assert results_json(results, {})["bounds"]["0.05"] is None
    assert results_json(results, {})["bounds"]["0.1"]["wrong"] == 1


def test_metrics_that_papers_define_differently_are_explained():
    names = ("guarded_substring_match", "substring_match", "f1", "set_f1")
    samples = tuple(replace(one, scores=dict.fromkeys(names, 1.0)) for one in made().samples)
    said = note(Results("substring_match", 4, 1, samples))
    assert said.startswith("subEM: a golden answer stands anywhere in the answer")
    assert "guarded subEM: as whole words, in an answer at most 10 words longer than it." in said
    assert said.endswith("set F1: F1 over the sets of words of both, articles kept.")


def test_sentences_that_hold_the_answer_are_counted_where_exact_match_is_asked_for():
    scores = [{"exact_match": em, "guarded_substring_match": sub} for em, sub in ((1.0, 1.0), (0.0, 1.0), (0.0, 0.0))]
    samples = tuple(replace(one, scores=own) for one, own in zip(made().samples, scores, strict=False))
    said = note(Results("exact_match", 3, 1, samples))
    assert "1 of 3 answers hold a golden answer within a longer text, which EM counts as wrong." in said
    assert "longer text" not in note(Results("guarded_substring_match", 3, 1, samples))


def test_markdown_holds_every_number():
    text = markdown(grids(made(3), "tiny_1 | greedy"), note(made(3)))
    assert "| EM | 0.250 [0.046, 0.699] (n=4, 1 invalid) |" in text
    assert "**tiny_1 | greedy**" in text
    assert "Not final" in text


def test_scores_name_n_and_the_invalid():
    assert score_text(Score(0.5, Interval(0.25, 0.75), 10, 0)) == "0.500 [0.250, 0.750] (n=10)"
    assert score_text(Score(0.5, Interval(0.25, 0.75), 10, 2)) == "0.500 [0.250, 0.750] (n=10, 2 invalid)"
    assert score_text(Score(float("nan"), Interval(0, 1), 3, 3)) == "no score (n=3, 3 invalid)"


def test_a_column_for_each_evaluation():
    one, other = Score(0.5, Interval(0.25, 0.75), 10, 0), Score(1.0, Interval(0.5, 1.0), 5, 1)
    grid = score_grid("title", "hops", {"before": {"1": one, "all": one}, "after": {"2": other, "all": other}})
    assert (grid.title, grid.head) == ("title", ("hops", "before", "after"))
    assert [row[0] for row in grid.rows] == ["1", "all", "2"]
    assert grid.rows[2] == ("2", "", "1.000 [0.500, 1.000] (n=5, 1 invalid)")


def test_outside_text_cannot_steer_the_terminal():
    stray = "\N{REPLACEMENT CHARACTER}"
    assert printable("a\x1b[2Jb\n\tc\u202e") == f"a{stray}[2Jb\n\tc{stray}"


def test_joiners_of_words_and_emoji_are_printed():
    assert printable("می\u200cخواهم 👩\u200d👧") == "می\u200cخواهم 👩\u200d👧"


def test_other_kinds_of_white_space_are_printed_as_plain_spaces():
    assert printable("10\u00a0kg\u202f1\u2003a\u3000b\rc\u2028d") == "10 kg 1 a b c d"


def test_plain_progress_lines():
    console = Console(file=StringIO(), width=200)
    metrics = {"reward": 0.5, "rollout/invalid_frac": 0.25}
    timings = {"rollout/tokens_per_s": 1234.5, "tools/latency_s": 0.01, "step/seconds": 2.0}
    with TrainingProgress(console) as progress:
        progress(StepProgress(0, 10, {"eval/reward": 0.125}, {}))
        progress(StepProgress(1, 10, metrics, timings))
    first, second = console.file.getvalue().splitlines()
    assert first == "step 0/10  held-out ▂ 0.125"
    expected = "step 1/10  reward 0.500  held-out ▂ 0.125  invalid 25.0%  rollout 1234 tok/s  tool 0.0100 s  left 18 s"
    assert second == expected


def test_self_play_shows_both_roles():
    console = Console(file=StringIO(), width=200)
    metrics = {"solver/reward": 0.25, "proposer/reward": 0.75, "selfplay/valid_rate": 0.5}
    with TrainingProgress(console) as progress:
        progress(StepProgress(0, 10, {"eval/reward": 0.125}, {}))
        progress(StepProgress(1, 10, metrics, {}))
    assert console.file.getvalue().splitlines()[1] == (
        "step 1/10  solver 0.250  held-out ▂ 0.125  proposer 0.750  valid 50.0%"
    )


@pytest.mark.parametrize("role", ["", "solver/"])
def test_progress_shows_how_rollouts_end(role):
    console = Console(file=StringIO(), width=200)
    ends = {"answered": 0.5, "malformed": 0.25, "max_tokens": 0.125}
    with TrainingProgress(console) as progress:
        progress(StepProgress(1, 10, {f"{role}rollout/stop/{how}": share for how, share in ends.items()}, {}))
    assert console.file.getvalue().strip() == "step 1/10  answered 50%  malformed 25%  cut off 12%"


def test_the_held_out_curve_shows_the_last_scores():
    assert curve([0.0, 0.5, 1.0]) == "▁▅█"
    assert curve([-1.0, 2.0]) == "▁█"
    assert curve([0.0] * 20 + [1.0]) == "▁" * 11 + "█"


@pytest.mark.parametrize(("mean", "right"), [(-0.8, 0), (1.5, 50), (0.5, 25)])
def test_a_held_out_score_outside_0_and_1_is_no_error(mean, right):
    score = held_out_score({"step": 3, "eval/reward": mean, "eval/n": 50, "eval/n_invalid": 7.0})
    assert score == Score(mean, wilson_interval(right, 50), 50, 7)


def test_brackets_in_names_are_text_and_no_markup():
    console = Console(file=StringIO(), width=80)
    console.print(terminal(Grid("a [b]", ("c[/d]", "e"), (("evs/a[lr=1e-5]", "\x1b[31m"),))))
    for text in ("a [b]", "c[/d]", "evs/a[lr=1e-5]", "\ufffd[31m"):
        assert text in console.file.getvalue()
    with CountProgress(console, "[/b]") as progress:
        progress(1, 1)
    assert "[/b] 1/1" in console.file.getvalue()


def test_each_kind_of_answer_has_its_metric_and_n():
    some = tuple(replace(one, is_long=n > 0, cited=1.0, answer="x") for n, one in enumerate(made().samples))
    results = Results("exact_match", 4, 1, some)
    shown = markdown(grids(results, "t"), None)
    rows = [line for line in shown.splitlines() if line.startswith(("| short", "| sentences"))]
    assert [row.split(" | ")[1] for row in rows[:3]] == ["EM", "F1", "cited passages right"]
    assert rows[0].endswith("(n=1) |")
    assert "(n=3" in rows[1]
    assert results_json(results, {})["kinds"]["sentences"]["f1"]["n"] == 3
    assert results_json(results, {})["questions_asked"] == 4
