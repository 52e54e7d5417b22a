"""Measuring a judge: what is asked, the table, the disagreements, and what could not be read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console
from tests.doubles.scripted import ChatScript, ScriptedChat

from evoseek.cli.main import main
from evoseek.errors import EvoseekError, ToolError
from evoseek.eval.judging import check_judge
from evoseek.questions.questions import JudgedAnswer
from evoseek.rollout.prompts import load_prompts
from evoseek.types import Message, Question

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
    monkeypatch.setattr("sys.argv", ["evoseek", "judge", "check", str(tmp_path / "c.jsonl")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "set judge.model" in capsys.readouterr().err
