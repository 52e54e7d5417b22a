"""Promised and held shares, from evaluations written down here."""

from dataclasses import replace

import pytest

from evoseek.eval.draw import Sample
from evoseek.eval.folder import EvaluationFolder

SHORT = "guarded_substring_match"


def samples(number, wrong, *, is_long=False):
    """Answers of falling certainty, the last ones wrong."""
    one = Sample("", 0, "", {}, "answered", "x", supported=True, is_long=is_long)
    return [
        replace(
            one,
            question=f"q{n:03}",
            scores={SHORT: float(n < number - wrong), "f1": 0.7 if n < number - wrong else 0.6},
            certainty=1 - n / 1000,
        )
        for n in range(number)
    ]


@pytest.fixture
def directory(tmp_path):
    sets = {"one": samples(60, 0), "two": samples(100, 40), "long": samples(20, 5, is_long=True)}
    for name, own in sets.items():
        folder = EvaluationFolder(tmp_path / f"{name}-all" / "model")
        with folder.held({}):
            for sample in own:
                folder.append(sample)
            folder.flush()
        folder.results.write_text("{}")
    return tmp_path


def test_a_bound_set_on_one_set_is_tried_on_another(script, directory):
    """60 right answers promise 5 % and all are shown, so all of the other set are: 40 of 100 are wrong there."""
    bench = script("bounded")
    rows = {row[:3]: row[3:] for row in bench.tries(bench.evaluations(directory)["model"], [0.05], 0.95, None)}
    assert rows["two", "one (60, 0 wrong)", "5%"] == ("all", "40 of 100 [0.31, 0.50]", "1.00, without 1.00")
    assert rows["one", "two (100, 40 wrong)", "5%"] == ("-", "", "0.00, without 1.00")
    assert rows["long", "one (60, 0 wrong)", "5%"][1].startswith("5 of 20 ")  # by F1, from 0.7
    assert {row[0] for row in rows} == {"one", "two", "long"}
    assert [row for row in rows if row[:2] == ("long", "one + two (160, 40 wrong)")]
