from io import StringIO

import pytest
from rich.console import Console

from evoseek.eval.evaluate import Evaluation, Result, Score
from evoseek.eval.statistics import Interval
from evoseek.report.answers import trajectory_text
from evoseek.report.printable import printable
from evoseek.report.progress import TrainingProgress, curve
from evoseek.report.tables import evaluation_table, score_text
from evoseek.training.loop import Progress
from evoseek.types import (
    Action,
    Invalid,
    Passage,
    Question,
    Scored,
    Segment,
    StopReason,
    ToolCall,
    ToolResult,
    Trajectory,
)


def shown(thing):
    console = Console(file=StringIO(), width=200)
    console.print(thing)
    return console.file.getvalue()


def trajectory(n=0, hops=1):
    call = ToolCall("search", {"query": "kalo"})
    return Trajectory(
        f"t{n}",
        Question(f"q{n}", "what is kalo?", ("meri",), {"hops": hops}),
        "solver",
        (Segment("prompt", (1,)),),
        (Action("<search> kalo </search>", (call,)), Action("<answer> meri </answer>", answer="meri")),
        (ToolResult(call, "", (Passage("p", "d", "Kalo", "text"),)),),
        StopReason.ANSWERED,
        "meri",
    )


def result(n, hops, outcome):
    one = trajectory(n, hops)
    return Result(one.question, one, outcome)


def test_scores_name_n_and_the_invalid():
    assert score_text(Score(0.5, Interval(0.25, 0.75), 10, 0)) == "0.500 [0.250, 0.750] (n=10)"
    assert score_text(Score(0.5, Interval(0.25, 0.75), 10, 2)) == "0.500 [0.250, 0.750] (n=10, 2 invalid)"
    assert score_text(Score(float("nan"), Interval(0, 1), 3, 3)) == "no score (n=3, 3 invalid)"


def test_table_by_hops():
    before = Evaluation("exact_match", 1.0, (result(0, 1, Scored(0.0)), result(1, 2, Scored(1.0))))
    after = Evaluation("exact_match", 1.0, (result(0, 1, Scored(1.0)), result(1, 2, Invalid(StopReason.DEADLINE))))
    text = shown(evaluation_table("title", {"before": before, "after": after}))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert [row[0] for row in rows] == ["1", "2", "all"]
    assert rows[0][1].startswith("0.000 [")
    assert rows[1][2] == "no score (n=1, 1 invalid)"
    assert "(n=2, 1 invalid)" in rows[2][2]
    assert "They are in n, and count as wrong." in " ".join(text.split())
    assert "wrong" not in shown(evaluation_table("title", {"before": before}))


def test_a_trajectory_as_text():
    text = trajectory_text(trajectory(), Scored(1.0))
    assert text.splitlines() == [
        "question: what is kalo?",
        "  policy: <search> kalo </search>",
        "  search: 1 passages (Kalo)",
        "  policy: <answer> meri </answer>",
        "  answer: meri (reward 1; right: meri; ended: answered)",
    ]
    assert "invalid: deadline" in trajectory_text(trajectory(), Invalid(StopReason.DEADLINE))


def test_outside_text_cannot_steer_the_terminal():
    stray = "\N{REPLACEMENT CHARACTER}"
    assert printable("a\x1b[2Jb\n\tc\u202e") == f"a{stray}[2Jb\n\tc{stray}"


def test_other_kinds_of_white_space_are_printed_as_plain_spaces():
    assert printable("10\u00a0kg\u202f1\u2003a\u3000b\rc\u2028d") == "10 kg 1 a b c d"


def test_plain_progress_lines():
    console = Console(file=StringIO(), width=200)
    metrics = {"reward": 0.5, "rollout/invalid_frac": 0.25}
    timings = {"rollout/tokens_per_s": 1234.5, "tools/latency_s": 0.01, "step/seconds": 2.0}
    with TrainingProgress(console) as progress:
        progress(Progress(0, 10, {"eval/reward": 0.125}, {}))
        progress(Progress(1, 10, metrics, timings))
    first, second = console.file.getvalue().splitlines()
    assert first == "step 0/10  held-out ▂ 0.125"
    expected = "step 1/10  reward 0.500  held-out ▂ 0.125  invalid 25.0%  rollout 1234 tok/s  tool 0.0100 s  left 18 s"
    assert second == expected


def test_self_play_shows_both_roles():
    console = Console(file=StringIO(), width=200)
    metrics = {"solver/reward": 0.25, "proposer/reward": 0.75, "selfplay/valid_rate": 0.5}
    with TrainingProgress(console) as progress:
        progress(Progress(0, 10, {"eval/reward": 0.125}, {}))
        progress(Progress(1, 10, metrics, {}))
    assert console.file.getvalue().splitlines()[1] == (
        "step 1/10  solver 0.250  held-out ▂ 0.125  proposer 0.750  valid 50.0%"
    )


@pytest.mark.parametrize("role", ["", "solver/"])
def test_progress_shows_how_rollouts_end(role):
    console = Console(file=StringIO(), width=200)
    ends = {"answered": 0.5, "malformed": 0.25, "max_tokens": 0.125}
    with TrainingProgress(console) as progress:
        progress(Progress(1, 10, {f"{role}rollout/stop/{how}": share for how, share in ends.items()}, {}))
    assert console.file.getvalue().strip() == "step 1/10  answered 50%  malformed 25%  cut off 12%"


def test_the_held_out_curve_shows_the_last_scores():
    assert curve([0.0, 0.5, 1.0]) == "▁▅█"
    assert curve([-1.0, 2.0]) == "▁█"
    assert curve([0.0] * 20 + [1.0]) == "▁" * 11 + "█"
