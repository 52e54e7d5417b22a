"""Names that are no names and numbers that are no numbers: one paragraph, for whichever command and option."""

import sys

import pytest

from evoseek.cli.main import main

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
