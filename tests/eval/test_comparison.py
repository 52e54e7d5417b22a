"""Paired tests by hand, or beside an independent computation."""

import json
import random
import re
from dataclasses import replace
from functools import partial
from math import comb, inf, sqrt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from evoseek.cli.evaluate import compare as command
from evoseek.cli.main import app, run_command
from evoseek.errors import ConfigError, DataError, RunError
from evoseek.eval.comparison import (
    bootstrap,
    common,
    compare,
    compare_folders,
    compare_sides,
    detectable,
    holm,
    mcnemar,
    paired_interval,
    values_of,
)
from evoseek.eval.draw import Sample
from evoseek.eval.folder import EvaluationFolder
from evoseek.eval.results import OF_SENTENCES
from evoseek.eval.statistics import score_interval
from evoseek.eval.tables import comparison_grids, sides_grids, terminal


def test_mcnemar_by_hand():
    """Nine discordant pairs, eight better: 2 (C(9, 0) + C(9, 1)) / 2^9 = 20/512."""
    assert mcnemar(8, 1) == pytest.approx(20 / 512)
    assert mcnemar(1, 8) == mcnemar(8, 1)
    assert (mcnemar(0, 0), mcnemar(3, 3)) == (1.0, 1.0)


@given(st.integers(0, 12), st.integers(0, 12))
def test_mcnemar_counts_coin_flips(better, worse):
    total, fewer = better + worse, min(better, worse)
    tail = sum(comb(total, k) for k in range(fewer + 1)) / 2**total
    assert mcnemar(better, worse) == pytest.approx(min(1.0, 2 * tail))


def test_the_interval_of_a_paired_difference_by_hand():
    """b = 8, c = 1, n = 20: (8 - 1) / 22 = .318182, half width 1.959964 sqrt(10 - 49/22) / 22 = .248381."""
    interval = paired_interval(8, 1, 20)
    half = 1.959964 * sqrt(10 - 49 / 22) / 22
    assert (interval.low, interval.high) == pytest.approx((7 / 22 - half, 7 / 22 + half), abs=1e-6)
    none = paired_interval(0, 0, 100)
    assert none.low == -none.high < 0


def test_holm_by_hand():
    """Sorted .01, .03, .04: .01 * 3, .03 * 2, max(.06, .04 * 1); and never above 1."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_equal_differences_of_a_reward_without_bounds_are_bounded_by_their_own_size():
    """Four times 2, or -2: the interval is that of scores from -2 to 2, and of smaller ones that from -1 to 1."""
    assert bootstrap([2.0] * 4, bound=inf) == score_interval([2.0] * 4, low=-2.0, high=2.0)
    assert bootstrap([-2.0] * 4, bound=inf) == score_interval([-2.0] * 4, low=-2.0, high=2.0)
    assert bootstrap([0.5] * 4, bound=inf) == score_interval([0.5] * 4, low=-1.0)
    rounded = [2 / 3 - 1 / 3, 1 - 2 / 3, 1 / 3 - 0.0]
    interval = bootstrap(rounded)
    assert interval.low < 0 < interval.high


def test_bootstrap_agrees_with_scipy():
    rng = random.Random(0)
    values = [rng.gauss(0.1, 0.3) for _ in range(80)]
    interval = bootstrap(values)
    low, high = stats.bootstrap((values,), lambda x, axis: x.mean(axis=axis), method="percentile").confidence_interval
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.01)
    assert bootstrap([0.25] * 5).low < 0.25 < bootstrap([0.25] * 5).high


def test_few_graded_differences_show_little():
    """Of three pairs all better, 2 of 8 sign flips are as far from 0: p = .25. Student's interval with 2 degrees of
    freedom: .2 +- 4.303 * .1 / sqrt(3)."""
    (one,) = compare({"A": dict.fromkeys("abc", 0.0), "B": {"a": 0.1, "b": 0.2, "c": 0.3}}, "f1")
    assert (one.test, one.p_value) == ("sign flips", 0.25)
    assert (one.interval.low, one.interval.high) == pytest.approx((0.2 - 0.2484, 0.2 + 0.2484), abs=1e-3)
    (single,) = compare({"A": {"a": 0.0}, "B": {"a": 0.5}}, "f1")
    assert single.p_value == 1.0


def test_differences_of_a_metric_that_goes_down_to_minus_1_reach_2():
    """Broken answers (-1) against F1 of .25 and .5: a mean difference of 1.375, and of two equal ones of 2 the half
    that Wilson's interval of 0 of 2 leaves open, .658 of -2 to 2."""
    first = dict.fromkeys("abcdefgh", -1.0)
    (graded,) = compare({"A": first, "B": {key: 0.25 + 0.25 * (key in "aceg") for key in first}}, "format_f1")
    assert graded.interval.low < graded.difference == 1.375 < graded.interval.high < 1.6
    (equal,) = compare({"A": {"a": -1.0, "b": -1.0}, "B": {"a": 1.0, "b": 1.0}}, "format_f1")
    assert (equal.interval.low, equal.interval.high) == pytest.approx((2 - 4 * 0.6576, 2.0), abs=1e-3)
    (whole,) = compare({"A": {"a": -1.0, "b": -1.0, "c": 1.0}, "B": {"a": 0.0, "b": 0.0, "c": 1.0}}, "format_f1")
    assert whole.test == "sign flips"  # differences of 0 and 1, but not of scores that are right or wrong


def test_help_and_page_name_the_tests_that_give_the_p_values():
    before, after = {"a": 0.0, "b": 1.0}, {"a": 1.0, "b": 1.0}
    tests = [compare({"A": before, "B": after | {"a": value}}, "f1")[0].test for value in (1.0, 0.5)]
    page = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
    for text in (command.__doc__, page[page.index("## Compare") :]):
        assert all(test in " ".join(text.split()) for test in tests)


def test_differences_of_a_reward_without_known_bounds_are_not_cut():
    """Student's interval of 2 and 4 reaches 3 + 12.7 * sqrt(2) / sqrt(2); that of F1 still ends at 1."""
    (own,) = compare({"A": {"a": 0.0, "b": 0.0}, "B": {"a": 2.0, "b": 4.0}}, "own.rewards:Length")
    assert own.interval.high == pytest.approx(3 + 12.706, abs=1e-3)
    (bounded,) = compare({"A": {"a": 0.0, "b": 0.0}, "B": {"a": 0.7, "b": 0.9}}, "f1")
    assert bounded.interval.high == 1.0


def test_what_n_can_show():
    """100 pairs, 10 better and 10 worse: sqrt(21/101/100) = .0456, times 1.96 + .84: .128. Four times as many pairs
    show half of that."""
    differences = [1.0] * 10 + [-1.0] * 10 + [0.0] * 80
    assert detectable(differences) == pytest.approx(0.1278, abs=2e-4)
    assert detectable(differences * 4) == pytest.approx(0.1278 / 2, rel=0.05)


def sample(question, value, number=0, content="c"):
    return Sample(question, number, content, {"exact_match": value, "f1": value / 2}, "answered")


def test_samples_are_averaged_and_questions_of_other_content_are_not_paired():
    first = values_of([sample("a", 1.0), sample("a", 0.0, 1), sample("b", 1.0)], "exact_match")
    assert first == {"a/c": 0.5, "b/c": 1.0}
    second = values_of([sample("a", 1.0), sample("b", 1.0, content="d"), sample("z", 0.0)], "exact_match")
    assert common({"A": first, "B": second}) == {"A": {"a/c": 0.5}, "B": {"a/c": 1.0}}
    with pytest.raises(DataError, match="A and B have no question in common"):
        common({"A": first, "B": {"y/c": 1.0}})


def test_answers_of_sentences_are_paired_among_themselves_by_f1():
    some = [sample("a", 1.0), replace(sample("b", 1.0), is_long=True)]
    assert values_of(some, "exact_match") == {"a/c": 1.0}
    assert values_of(some, "f1") == {"b/c": 0.5}
    assert values_of(some[:1], "f1") == {"a/c": 0.5}
    refused = replace(sample("d", 1.0), answerable=False)
    assert values_of([some[1], refused], "f1") == {"b/c": 0.5, "d/c": 0.5}  # as `evoseek eval` scores them
    assert values_of([some[1], refused], "exact_match") == {"d/c": 1.0}


def test_every_pair_is_tested_and_corrected():
    values = {name: {str(n): float(n < right) for n in range(40)} for name, right in (("A", 0), ("B", 10), ("C", 20))}
    found = compare(values, "exact_match")
    assert [(one.first, one.second, one.difference) for one in found] == [
        ("A", "B", 0.25),
        ("A", "C", 0.5),
        ("B", "C", 0.25),
    ]
    assert [one.test for one in found] == ["McNemar"] * 3
    assert found[1].p_value == pytest.approx(2 / 2**20)
    assert found[1].adjusted == pytest.approx(6 / 2**20)
    assert found[0].adjusted == found[2].adjusted == pytest.approx(2 * 2 / 2**10)


@pytest.fixture
def folder(tmp_path):
    def make(name, values, metric="exact_match"):
        made = EvaluationFolder(tmp_path / name)
        with made.held({}):
            for question, value in values.items():
                made.append(sample(question, value))
            made.results.write_text(json.dumps({"metric": metric, "n": len(values), "samples": 1}))
        return made.path

    return make


def shown(*folders, metric=None):
    compared, console = compare_folders(folders, metric), Console(width=200)
    with console.capture() as captured:
        for shown in (*map(terminal, comparison_grids(compared)), *compared.notes):
            console.print(shown)
    return " ".join(captured.get().split())


def test_what_differs_and_what_is_too_small_is_said(folder):
    first = folder("first", {str(n): float(n < 8) for n in range(20)})
    second = folder("second", {str(n): float(n < 9) for n in range(22)})
    said = shown(first, second)
    assert "EM over 20 common questions" in said
    assert "Only the 20 questions that all of them have are compared" in said
    assert "+0.050" in said
    assert "20 questions cannot carry a claim" in said
    assert "F1 over 20 common questions" in shown(first, second, metric="f1")


def test_refusals(folder, tmp_path):
    first = folder("first", {"a": 1.0})
    with pytest.raises(ConfigError, match="two or more different folders"):
        shown(first, first)
    with pytest.raises(ConfigError, match=r"different metrics \(exact_match, f1\)"):
        shown(first, folder("second", {"a": 1.0}, "f1"))
    with pytest.raises(DataError, match="without a score by judge"):
        shown(first, folder("third", {"a": 1.0}), metric="judge")


def test_what_answers_in_sentences_is_compared_as_that(tmp_path, folder):
    """Also with an evaluation by exact match: an answer in few words is right by the metric of sentences, too."""
    first, second = folder("first", {"a": 1.0, "b": 0.0}), folder("second", {"a": 0.0, "b": 0.0}, OF_SENTENCES)
    for path, values in ((first, [1.0, 0.0]), (second, [1.0, 1.0])):
        rows = [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]
        rows = [row | {"scores": {**row["scores"], OF_SENTENCES: one}} for row, one in zip(rows, values, strict=True)]
        (path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    compared = compare_folders([first, second])
    assert (compared.metric, list(compared.means.values())) == (OF_SENTENCES, [0.5, 1.0])


SEARCH_R1, DSPO = (0.55, 0.575, 0.575), (0.775, 0.525, 0.675)


def seeds(folder, name, scores):
    return [folder(f"{name}-{n}", {str(q): float(q < 40 * score) for q in range(40)}) for n, score in enumerate(scores)]


def test_methods_are_compared_over_their_seeds(folder):
    """By hand: differences of .225, -.05 and .1, mean .09167, standard deviation .13769, so that Student's interval is
    .09167 +- 4.3027 * .13769 / sqrt(3)."""
    compared = compare_sides(seeds(folder, "search-r1", SEARCH_R1), seeds(folder, "dspo", DSPO))
    assert compared.difference == pytest.approx(0.09167, abs=1e-4)
    half = 4.3027 * 0.13769 / sqrt(3)
    assert (compared.interval.low, compared.interval.high) == pytest.approx((0.09167 - half, 0.09167 + half), abs=1e-3)
    assert compared.p_value == pytest.approx(float(stats.ttest_rel(DSPO, SEARCH_R1).pvalue))
    assert [*compared.first.values()] == pytest.approx(SEARCH_R1)
    assert (compared.n, compared.test) == (40, "Student, seed by seed")


def test_sides_of_different_numbers_of_seeds_are_compared_by_welch(folder):
    compared = compare_sides(seeds(folder, "search-r1", SEARCH_R1), seeds(folder, "dspo", DSPO[:2]))
    wanted = stats.ttest_ind(DSPO[:2], SEARCH_R1, equal_var=False)
    assert (compared.test, compared.p_value) == ("Welch", pytest.approx(float(wanted.pvalue)))
    assert compared.interval.low == pytest.approx(float(wanted.confidence_interval().low))


def test_seeds_that_agree_have_an_interval_all_the_same(folder):
    same = compare_sides(seeds(folder, "a", (0.5, 0.5)), seeds(folder, "b", (0.5, 0.5)))
    assert (same.difference, same.p_value) == (0.0, 1.0)
    assert same.interval.low < 0 < same.interval.high
    other = compare_sides(seeds(folder, "c", (0.5, 0.5)), seeds(folder, "d", (0.75, 0.75)))
    assert other.interval.low < 0.25 < other.interval.high


def test_one_seed_is_no_side(folder):
    one, two = seeds(folder, "a", (0.5,)), seeds(folder, "b", (0.5, 0.6))
    with pytest.raises(ConfigError, match=r"2 evaluations are compared with 1 \(--against\).*two or more on each side"):
        compare_sides(two, one)
    with pytest.raises(ConfigError, match="different folders"):
        compare_sides(two, [*one, two[0]])


@pytest.mark.parametrize("form", [["--against", 0, 1, 2], ["--against", 0, "--against", 1, "--against=", 2]])
def test_the_command_takes_several_folders_after_one_option(folder, form, capsys):
    first, second = seeds(folder, "search-r1", SEARCH_R1), seeds(folder, "dspo", DSPO)
    words = [second[word] if isinstance(word, int) else word for word in form]
    if "--against=" in words:
        words[-2:] = [f"--against={words[-1]}"]
    status = run_command(partial(app, ["compare", *map(str, [*first, *words]), "--json"], standalone_mode=False))
    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert [len(found[side]) for side in ("first", "second")] == [3, 3]


def test_a_pair_is_said_to_be_two_policies(folder):
    first, second = seeds(folder, "a", (0.5,)), seeds(folder, "b", (0.9,))
    assert "says nothing about how they were trained" in shown(*first, *second)


@pytest.mark.parametrize("sides", [True, False])
def test_names_that_begin_alike_are_told_apart_in_80_columns(folder, sides):
    name = "a-rather-long-folder-of-results-of-a-sweep-with-many-seeds-and-settings/with-the-name-search-r1"
    (folder("x", {"a": 1.0}).parent / name).parent.mkdir(parents=True)
    first, second = seeds(folder, name, (0.5, 0.6)), seeds(folder, f"{name}-dspo", (0.7, 0.9))
    console = Console(width=80)
    with console.capture() as captured:
        grids = (
            sides_grids(compare_sides(first, second)) if sides else comparison_grids(compare_folders(first + second))
        )
        for grid in grids:
            console.print(terminal(grid))
    text = captured.get()
    assert "…" not in text
    cells = "".join(re.sub(r"[^\w/-]", "", line.split("│")[2]) for line in text.splitlines() if line.count("│") == 4)
    assert all(str(path) in cells for path in first + second)
    assert "B - A" in text


def test_a_part_of_an_evaluation_and_damaged_results_are_refused(folder):
    whole, part = folder("whole", {"a": 1.0, "b": 0.0}), folder("part", {"a": 1.0, "b": 0.0})
    lines = (part / "samples.jsonl").read_text().splitlines(keepends=True)
    (part / "samples.jsonl").write_text(lines[0])
    with pytest.raises(DataError, match="has results of 2 samples, but 1 in"):
        shown(whole, part)
    (part / "samples.jsonl").write_text(lines[0] + lines[1].replace('"number": 0', '"number": "0"'))
    with pytest.raises(DataError, match=r"samples.jsonl:2 is not a sample .*number"):
        shown(whole, part)
    (part / "results.json").write_text("{}")
    with pytest.raises(RunError, match="lacks its metric"):
        shown(whole, part)
