"""The table of baselines, from samples written down here."""

from evoseek.eval.draw import Sample
from evoseek.eval.results import Results


def results(*right, seed, searches=1):
    samples = [
        Sample(f"q{n}", 0, f"{seed}-{n}", {"exact_match": value}, "answered", searches=searches, written=10, read=30)
        for n, value in enumerate(right)
    ]
    return Results("exact_match", len(samples), 1, tuple(samples))


def test_the_last_arm_is_compared_with_each_over_all_seeds(script):
    """Of 6 questions the last arm gains 4 and loses none: McNemar's p is 2 / 2 ** 4; twice that after Holm."""
    found = {
        "direct": {0: results(0.0, 0.0, 0.0, seed=0, searches=0), 1: results(1.0, 0.0, 0.0, seed=1, searches=0)},
        "rag": {0: results(1.0, 0.0, 0.0, seed=0), 1: results(0.0, 0.0, 0.0, seed=1)},
        "trained-0": {0: results(1.0, 1.0, 0.0, seed=0), 1: results(1.0, 1.0, 1.0, seed=1, searches=3)},
    }
    head, direct, rag, last = script("baselines").rows(found)
    assert head[3] == "trained-0 minus it"
    assert direct[:3] == ("direct", "0.167 [0.030, 0.564]", "0.000 0.333")
    assert (direct[3][:6], direct[4], rag[3][:6], rag[4]) == ("+0.667", "0.25", "+0.667", "0.25")
    assert last[0] == "trained-0"
    assert last[1].startswith("0.833 [")
    assert last[2:] == ("0.667 1.000", "", "", "2.0", "10.0", "30.0", "0")
