import io

import pytest
from rich.console import Console

from evoseek.errors import ConfigError
from evoseek.report.view.source import RunSource
from evoseek.report.view.terminal import list_rollouts, show_rollout


@pytest.fixture
def source(make_run, make_row):
    return RunSource.open(
        make_run(
            [
                make_row(0, outcome={"reward": 0.0, "parts": {}}, answer="\x1b[2JKalo", stop="max_turns"),
                make_row(1, outcome={"invalid": "deadline", "detail": "30 s"}, stop="deadline"),
                make_row(2, group="g", question="[bold]What?", metadata={"hops": 3}),
            ],
            samples=[{"id": "g/2", "advantages": 0.5}],
        )
    )


def said(source, show, *arguments):
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    show(console, source, *arguments)
    return console.file.getvalue()


def test_the_list_shows_facts_and_cannot_steer_the_terminal(source):
    text = said(source, list_rollouts, 50)
    assert "   0.00  step-000001/q/0  (step 1, solver, max_turns, 1 search)" in text
    assert "Invalid  step-000001/q/1" in text
    assert "[bold]What?  ->  Meri".replace("  ", " ") in text
    assert "\x1b" not in text
    assert "3 trajectories." in text


def test_the_last_ones_are_listed(source):
    text = said(source, list_rollouts, 1)
    assert "3 trajectories, the last 1 are shown." in text
    assert "step-000001" not in text


def test_one_in_full(source):
    text = said(source, show_rollout, "g/2")
    assert "Policy:\nsearch\n\nObservation:\nKalo 's mayor is Meri .\n\nPolicy:\nanswer" in text
    assert "Reward: 1 (exact_match 1)\nAdvantage: +0.5" in text


def test_an_unknown_id_is_an_error(source):
    with pytest.raises(ConfigError, match="Did you mean g/2"):
        said(source, show_rollout, "g/3")
