"""Names that are no names and numbers that are no numbers: one paragraph, for whichever command and option."""

import sys
from pathlib import Path

import pytest

from evoseek.cli.main import main
from evoseek.world.world import make_world

LONG = "x" * 300


@pytest.fixture
def said(capsys, monkeypatch, tmp_path):
    """`said("view", ...)`: the status and stderr of a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["evoseek", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    "words",
    [
        *(("view", "run", "--out", name) for name in (".", "/", "..", "run", LONG, f"{LONG}/x.html")),
        *(("filter", "q.jsonl", out, "--evaluation", "q.jsonl") for out in (".", "/", LONG, "\udcff")),
        *(("review", "q.jsonl", "--out", out) for out in (".", "/", LONG)),
        *((command, "run", LONG) for command in ("view", "compare")),
        *(("status", name) for name in (LONG, "\udcff", f"run/config.json/{LONG}", "run/config.json/x")),
        *(("ask", "who?", "--model", name, "--index", "ix") for name in (LONG, "\udcff", ".", "/")),
        *(("collect", "q.jsonl", "out.jsonl", "--model", name, "--index", "ix") for name in (LONG, "\udcff")),
        *(("export", "tiny", name) for name in (LONG, "\udcff", "/", ".", "run/config.json/x")),
        ("export", LONG, "out"),
        ("index", LONG, "ix2"),
        ("index", "q.jsonl", LONG),
        ("ask", "who?", "--show-prompt", "solver", "--model", LONG),
        ("ask", "who?", "--show-prompt", "solver", "--set", f"policy.prompts={LONG}"),
        ("propose", "ix", LONG, "--cold", "--count", 2),
        ("feedback", "--project", LONG),
        *(("serve", "agent", name, "--index", "ix") for name in (LONG, "\udcff")),
        *(("collect", "q.jsonl", "o.jsonl", "--min-reward", number) for number in ("nan", "inf", "-inf")),
        *(("eval", "--limit", number, "--model", "tiny") for number in (-1, 0)),
        ("eval", "--temperature", "nan", "--model", "tiny"),
    ],
    ids=lambda words: " ".join(str(word)[:12] for word in words).encode(errors="backslashreplace").decode(),
)
def test_one_paragraph_that_is_no_bug(said, tmp_path, words):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "q.jsonl").write_text('{"id": "a", "question": "who?", "answer": "Meri"}\n')
    status, text = said(*words)
    assert status == 2
    assert "this is a bug" not in text
    assert "Traceback" not in text
    assert text.strip()


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("parts", "loss"), "list"),
        (("recipes",), "list recipes"),
        (("prompt", "who?"), "ask --show-prompt"),
        (("data", "filter", "q.jsonl", "out.jsonl"), "filter"),
        (("judge", "check", "q.jsonl"), "eval"),
    ],
)
def test_a_command_that_is_gone_names_the_one_in_its_place(said, words, now):
    assert said(*words) == (
        2,
        f"evoseek: There is no command {words[0]!r} any more. Use `evoseek {now}` (CHANGELOG.md, Removed).\n",
    )
    changes = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert f"`evoseek {words[0]}" in changes.split("\n### Removed\n")[1]


def test_a_part_that_imports_a_module_that_moved_when_it_is_called_is_told_so(said, tmp_path):
    (tmp_path / "calls_late.py").write_text("def reward(trajectory):\n    from evoseek import runs\n")
    make_world(tmp_path / "world", questions=2, entities=200)
    words = ("train", "--run-dir", "run", "--model", "tiny", "--index", "world/index", "--steps", 1)
    settings = ("questions.path=world/questions.jsonl", "questions.per_step=1", "rollout.group_size=2")
    given = [word for one in (*settings, "reward.name=calls_late:reward") for word in ("--set", one)]
    status, text = said(*words, *given)
    assert status == 2
    assert text.endswith(" It imports evoseek.runs, which is now evoseek.storage.runs. Import it from there.\n")
