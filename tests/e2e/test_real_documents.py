"""Documents as they lie on a machine, and models of two architectures with tokenizers of their own."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from evoseek.search.lexical import LexicalIndex

pytestmark = pytest.mark.slow

WANTED = 2_000
SUFFIXES = {".html", ".htm", ".md", ".txt"}


def documentation() -> Path | None:
    """A folder of at least WANTED text or HTML files: a language's documentation, the system's, or the packages'."""
    candidates = itertools.chain(
        sorted(Path.home().glob(".rustup/toolchains/stable-*/share/doc/rust/html/std")),
        (Path("/usr/share/doc"), Path(sysconfig.get_paths()["stdlib"]), Path("/usr/share")),
    )
    for folder in candidates:
        texts = (path for path in folder.rglob("*") if path.suffix in SUFFIXES)
        if sum(1 for _ in itertools.islice(texts, WANTED)) == WANTED:
            return folder
    return None


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """An index of real documents and questions about their titles."""
    folder = documentation()
    if folder is None:
        pytest.skip(f"no folder with {WANTED} text or HTML files was found on this machine")
    root = tmp_path_factory.mktemp("real")
    corpus = root / "corpus"
    corpus.mkdir()
    (corpus / "documentation").symlink_to(folder)
    (corpus / "binary.txt").write_bytes(bytes(range(256)) * 10)
    (corpus / "loop").symlink_to(corpus)
    return root, corpus


def run(*words):
    command = [sys.executable, "-c", "from evoseek.cli.main import main; main()", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300"})


def test_index_search_train_kill_and_resume(real, random_model):
    root, corpus = real
    indexed = run("index", corpus, root / "index")
    assert indexed.returncode == 0, indexed.stderr
    read = int(re.search(r"([\d,]+) documents read", indexed.stdout)[1].replace(",", ""))
    assert read >= WANTED * 0.9
    assert "binary.txt" in indexed.stdout

    index = LexicalIndex.open(root / "index")
    titles = list(dict.fromkeys(passage.title for passage in itertools.islice(index.passages(), 4000)))[:20]
    found = run("search", root / "index", titles[3])
    assert titles[3] in found.stdout
    rows = ({"question": f"Which page is about {title}?", "golden_answers": [title]} for title in titles)
    (root / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    for form in ("tools", "tags"):
        random_model(form, root / form)
        words = ["train", "search-r1", "--run-dir", root / f"run-{form}", "--model", root / form, "--steps", 3]
        words += ["--index", root / "index", "--questions", root / "questions.jsonl"]
        for setting in (
            f"policy.format={form}",
            "questions.per_step=2",
            "rollout.group_size=2",
            "sampler.slots=4",
            "rollout.max_total_tokens=3000",
            "run.checkpoint_every=1",
        ):
            words += ["--set", setting]
        if form == "tools":
            kill_after_first_step(words)
        trained = run(*words)
        assert trained.returncode == 0, trained.stderr
        assert ("Resuming" in trained.stdout) == (form == "tools")
        metrics = [json.loads(line) for line in (root / f"run-{form}" / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in metrics] == [1, 2, 3]
        assert metrics[-1]["rollout/invalid_frac"] == 0.0


def kill_after_first_step(words) -> None:
    command = [sys.executable, "-c", "from evoseek.cli.main import main; main()", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("step 2/3"):
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
