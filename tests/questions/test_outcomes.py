"""What became of proposals, and how their writing goes."""

from io import StringIO

from rich.console import Console

from evoseek.questions.outcomes import VALID, Rejection, failed, outcomes_table, outcomes_text


def printed(counts):
    console = Console(file=StringIO(), width=150)
    console.print(outcomes_table(counts))
    return console.file.getvalue()


def test_the_valid_come_first_then_the_most_frequent_with_shares_of_all():
    text = printed({Rejection.TOO_SHORT: 3, VALID: 1, Rejection.UNFINISHED: 6})
    lines = [line for line in text.splitlines() if "%" in line]
    assert [line.split()[1] for line in lines] == ["valid", "unfinished", "too_short"]
    assert [line.split()[3] for line in lines] == ["1", "6", "3"]
    assert [line.split()[5] for line in lines] == ["10.0%", "60.0%", "30.0%"]


def test_every_outcome_has_a_meaning():
    for outcome in (VALID, *Rejection, failed("tool_failed")):
        (line,) = [line for line in printed({str(outcome): 1}).splitlines() if "100.0%" in line]
        assert len(line.split("100.0%")[1].split()) > 3


def test_the_share_of_valid_proposals_so_far():
    assert outcomes_text({VALID: 24, "unfinished": 8}) == "32 proposals, valid 75.0%"
