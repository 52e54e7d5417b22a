"""The commands of the pages, run as they are printed, in a folder that has what they name. What trains, or serves, or
asks a server or another model, is only planned. The Quick start and Your documents are in test_documents.py."""

import shutil
from pathlib import Path
from runpy import run_path

import pytest
from typer.testing import CliRunner

from evoseek import LexicalIndex, Run, make_world
from evoseek.cli.main import app
from evoseek.questions.questions import load_questions, save_questions
from evoseek.rollout.record import read_trajectories
from evoseek.world.world import load_world

ROOT = Path(__file__).parents[2]
PAGES = run_path(str(Path(__file__).with_name("pages.py")))
PLANNED = {"train", "serve", "world", "simulator", "propose", "collect", "sft", "filter"}
ELSEWHERE = {"hotpotqa", "--choose", "--adapter", "written.jsonl", "smollm2", "3b", "7b"}  # need another run or model
PROJECT = """
[project]
documents = "my-documents"
run = "runs/mine"
[search]
index = "my-index"
[policy]
model = "tiny"
"""
SYSTEMS = [f"systems/{name}" for name in ("dspo", "dr-zero", "ssp")]
SEEDS = [f"results/{method}-{seed}" for method in ("grpo", "dspo") for seed in range(3)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with documents, questions, an index, a run of the tiny policy and its evaluations."""
    folder = tmp_path_factory.mktemp("made")
    make_world(folder / "demo" / "evaluation", entities=200, questions=24)
    world = load_world(folder / "demo" / "evaluation" / "world.json")
    (folder / "my-documents").mkdir()
    for document in list(world.documents())[:20]:
        (folder / "my-documents" / f"{document.title}.md").write_text(f"# {document.title}\n\n{document.text}\n")
    LexicalIndex.build(folder / "my-index", world.passages())
    every = load_questions(folder / "demo" / "evaluation" / "questions.jsonl")
    save_questions(folder / "held-out.jsonl", every[:4])
    for name in ("questions.jsonl", "QUESTIONS"):
        save_questions(folder / name, every)
    labelled = '{"question": "Who?", "golden_answers": ["Meri"], "answer": "Meri", "correct": true}\n'
    (folder / "labelled.jsonl").write_text(labelled)
    settings = {"search.index": str(folder / "my-index"), "questions.path": str(folder / "questions.jsonl")}
    settings |= {"policy.model": "tiny", "questions.per_step": 2, "rollout.group_size": 2, "run.steps": 1}
    Run("search-r1", folder / "runs" / "mine", settings=settings).train()
    (folder / "evoseek.toml").write_text(PROJECT)
    return folder


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    """A copy, which is the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "my-index", tmp_path / "INDEX")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    return tmp_path


def to_run(words):
    """The words of a command for here; None for one that is not run."""
    if any(part in word.split("/") for word in words for part in ELSEWHERE) or "..." in words:
        return None
    last = [record.trajectory.id for record in read_trajectories(Path("runs/mine/trajectories.jsonl"))][-1]
    words = [{"MODEL": "tiny", "step-000012/train-0-356/3": last}.get(word, word) for word in words]
    is_planned = words[0] in PLANNED or any("://" in word for word in words) or "--watch" in words
    more = ["--no-probe"] if words[0] == "doctor" else ["--dry-run"] if is_planned and "--dry-run" not in words else []
    return [*words, *more]


@pytest.mark.parametrize("page", ["evaluate", "search", "serve", "train", *SYSTEMS])
def test_the_commands_of_a_page(page, folder):
    every = PAGES["commands"]((ROOT / "docs" / f"{page}.md").read_text())
    called = [words for program, *words in every if program == "evoseek"]
    called = [words for one in called if (words := to_run(one)) is not None]
    failed = {}
    for words in called:
        prepared(words)
        done = CliRunner().invoke(app, words)
        has_found_none = words[0] in ("ask", "doctor") and isinstance(done.exception, SystemExit)
        if done.exit_code and not has_found_none:
            failed[" ".join(words)] = done.exception
    assert called
    assert not failed, "\n".join(f"{words}: {error}" for words, error in failed.items())


def prepared(words):
    """Make the runs and evaluations that a command reads, and that no command before it has made."""
    for name in words:
        kind = "runs/mine" if name.startswith("runs/") and words[0] not in PLANNED else "results/before"
        if (kind == "runs/mine" or name in (*SEEDS, "results/after")) and not Path(name).exists():
            shutil.copytree(kind, name)
