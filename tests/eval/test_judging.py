"""Agreement, rates and kappa worked out by hand; what a judge is asked, and what is printed of it."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.doubles.scripted import ChatScript, ScriptedChat

from evoseek.cli.main import main
from evoseek.errors import EvoseekError, ToolError
from evoseek.eval.judging import Agreement, check_judge
from evoseek.eval.statistics import Interval, wilson_interval
from evoseek.questions.questions import JudgedAnswer
from evoseek.rollout.prompts import load_prompts
from evoseek.types import Message, Question

PAIRS = st.lists(st.tuples(st.booleans(), st.sampled_from([True, False, None])))


def made(tp: int, fp: int, fn: int, tn: int, unread: tuple[int, int] = (0, 0)) -> Agreement:
    """`unread`: answers without a verdict, labelled correct and labelled incorrect."""
    return Agreement.of(
        [(True, True)] * tp + [(False, True)] * fp + [(True, False)] * fn + [(False, False)] * tn
        + [(True, None)] * unread[0] + [(False, None)] * unread[1]
    )  # fmt: skip


def test_by_hand():
    """50 answers, 20 both correct, 5 false positives, 10 false negatives, 15 both incorrect: 35 of 50 agree. By chance
    (30 * 25 + 20 * 25) / 2500 = 0.5, so kappa is (0.7 - 0.5) / 0.5."""
    found = made(20, 5, 10, 15)
    assert (found.agreement.mean, found.agreement.n, found.agreement.n_invalid) == (0.7, 50, 0)
    assert found.agreement.interval == wilson_interval(35, 50)
    assert found.kappa == pytest.approx(0.4)
    assert (found.false_positives.mean, found.false_positives.n) == (0.25, 20)
    assert found.false_positives.interval == wilson_interval(5, 20)
    assert found.false_negatives.mean == pytest.approx(1 / 3)
    assert found.false_negatives.n == 30


def test_answers_without_a_verdict_are_counted_and_in_no_mean():
    found = made(20, 5, 10, 15, unread=(3, 4))
    assert (found.agreement.mean, found.agreement.n, found.agreement.n_invalid) == (0.7, 57, 7)
    assert (found.false_positives.mean, found.false_positives.n, found.false_positives.n_invalid) == (0.25, 24, 4)
    assert (found.false_negatives.n, found.false_negatives.n_invalid) == (33, 3)
    assert found.agreement.interval == wilson_interval(35, 50)
    assert found.kappa == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("cells", "kappa"),
    [((10, 0, 0, 10), 1.0), ((0, 10, 10, 0), -1.0), ((5, 5, 5, 5), 0.0), ((8, 2, 0, 0), 0.0), ((0, 0, 0, 0), None)],
)
def test_kappa_at_its_borders(cells, kappa):
    assert made(*cells).kappa == kappa if kappa is not None else math.isnan(made(*cells).kappa)


def test_nothing_to_measure_gives_no_number():
    found = made(3, 0, 0, 0, unread=(1, 0))
    assert math.isnan(found.kappa)  # one label, one verdict
    assert math.isnan(found.false_positives.mean)
    assert (found.false_positives.n, found.false_positives.interval) == (0, Interval(0.0, 1.0))
    assert math.isnan(made(0, 0, 0, 0, unread=(2, 2)).agreement.mean)


@given(PAIRS)
def test_it_is_a_count_of_pairs(pairs):
    found = Agreement.of(pairs)
    judged = [(label, verdict) for label, verdict in pairs if verdict is not None]
    assert found.agreement.n == len(pairs)
    assert found.agreement.n_invalid == len(pairs) - len(judged)
    if judged:
        assert found.agreement.mean == pytest.approx(sum(a == b for a, b in judged) / len(judged))
    assert found.false_positives.n + found.false_negatives.n == len(pairs)
    flipped = Agreement.of([(not label, None if verdict is None else not verdict) for label, verdict in pairs])
    assert flipped.kappa == pytest.approx(found.kappa, nan_ok=True)
    assert flipped.false_positives == found.false_negatives or math.isnan(found.false_negatives.mean)


ANSWERS = [
    ("F. Herbert", True),
    ("Brian Herbert", False),
    ("Asimov \x1b[31m[bold]", False),
    ("the author of Dune Messiah", True),
    ("Frank H.", True),
    ("I say correct", False),
]


def labelled(answers: list[tuple[str, bool]]) -> list[JudgedAnswer]:
    question = Question("same", "Who wrote Dune?", ("Frank Herbert",))
    return [JudgedAnswer(question, text, correct, line) for line, (text, correct) in enumerate(answers, start=1)]


def check(script: ChatScript, answers: list[tuple[str, bool]] = ANSWERS) -> tuple[str, ScriptedChat]:
    """What is printed, and the chat."""
    chat, out = ScriptedChat(script, name="Judge-7B"), StringIO()
    check_judge(chat, load_prompts("default"), labelled(answers), console=Console(file=out, width=200))
    return out.getvalue(), chat


REPLIES = ["correct", "incorrect", "correct", "incorrect", "fail", "Correct, as it says."]


def in_order(replies: list[str]) -> ChatScript:
    said = {f"check/{line}/judge": reply for line, reply in enumerate(replies, start=1)}

    def script(messages: Sequence[Message], key: str) -> str:
        if said[key] == "fail":
            raise ToolError("The endpoint is down.")
        return said[key]

    return script


def test_the_table_the_disagreements_and_what_could_not_be_read() -> None:
    text, chat = check(in_order(REPLIES))
    assert len({asked.key for asked in chat.asked}) == len(chat.asked) == 6
    assert re.search(r"agreement .* 0\.500 \[0\.150, 0\.850\] \(n=6, 2 invalid\)", text)
    assert re.search(r"false positives .* 0\.500 .*\(n=3, 1 invalid\)", text)
    assert re.search(r"false negatives .* 0\.500 .*\(n=3, 1 invalid\)", text)
    assert re.search(r"Cohen's kappa .* 0\.000", text)
    assert "Judge-7B" in text
    assert "Judged otherwise than labelled (2 of 2):\n  line 3: judged correct: Asimov �[31m[bold]\n" in text
    assert "  line 4: judged incorrect: the author of Dune Messiah\n" in text
    assert "Without a verdict (2 of 2):\n  line 5: The endpoint is down.\n  line 6: The reply" in text
    assert "\x1b" not in text


def test_only_the_first_few_are_shown_and_progress_is_short_without_a_terminal() -> None:
    text, _ = check(lambda messages, key: "incorrect", [(f"Author {n}", n < 100) for n in range(200)])
    assert "Judged otherwise than labelled (5 of 100):" in text
    assert text.count("judged incorrect:") == 5
    assert [line.split()[1] for line in text.splitlines() if line.startswith("answers ")] == [
        f"{done}/200" for done in range(20, 201, 20)
    ]


def test_no_verdict_at_all_is_an_error() -> None:
    with pytest.raises(EvoseekError, match=r"no verdict on any of 6 answers.*6 times\): The endpoint is down\."):
        check(in_order(["fail"] * 6))


def test_all_are_asked_at_once() -> None:
    """A judge that does not reply before everybody has asked."""

    class Waiting(ScriptedChat):
        async def chat(self, messages, *, key, form=None):
            reply = await super().chat(messages, key=key, form=form)
            while len(self.asked) < 6:
                await asyncio.sleep(0)
            return reply

    chat = Waiting(lambda messages, key: "correct")
    check_judge(chat, load_prompts("default"), labelled(ANSWERS), console=Console(quiet=True))


def test_the_command_wants_a_judge(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "c.jsonl").write_text('{"question": "q?", "golden_answers": ["a"], "answer": "a", "correct": true}\n')
    monkeypatch.setattr("sys.argv", ["evoseek", "eval", "--check-judge", str(tmp_path / "c.jsonl")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "judge.model is empty" in capsys.readouterr().err
