"""Documents as they lie on a machine, and models of two architectures with tokenizers of their own."""

import itertools
import json
import re
import signal
import sysconfig
from pathlib import Path

import pytest

from evoseek.search.lexical import LexicalIndex

pytestmark = pytest.mark.slow

WANTED = 100
LARGEST = 100_000  # bytes of one; a few are megabytes, and take longer than all the others
SUFFIXES = {".html", ".htm", ".md", ".txt"}


def documentation() -> list[Path]:
    """WANTED text or HTML files that are not large: of a language's documentation, the system's, or the packages'.
    Empty if there are fewer."""
    candidates = itertools.chain(
        sorted(Path.home().glob(".rustup/toolchains/stable-*/share/doc/rust/html/std")),
        (Path("/usr/share/doc"), Path(sysconfig.get_paths()["stdlib"]), Path("/usr/share")),
    )
    for folder in candidates:
        texts = (path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        texts = (path for path in texts if path.stat().st_size < LARGEST)
        found = list(itertools.islice(texts, WANTED))
        if len(found) == WANTED:
            return found
    return []


@pytest.fixture
def corpus(tmp_path):
    """Real documents, and what else may lie among them."""
    files = documentation()
    if not files:
        pytest.skip(f"no folder with {WANTED} text or HTML files was found on this machine")
    corpus = tmp_path / "corpus"
    for number, file in enumerate(files):
        place = corpus / str(number % 10) / f"{number}{file.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(file)
    (corpus / "binary.txt").write_bytes(bytes(range(256)) * 10)
    (corpus / "loop").symlink_to(corpus)
    return corpus


def test_index_search_train_kill_and_resume(corpus, random_model, processes, cli, tmp_path):
    root = tmp_path
    status, said, err = cli("index", corpus, root / "index", "--follow-links")
    assert status == 0, err
    read = int(re.search(r"([\d,]+) documents read", " ".join(said.split()))[1].replace(",", ""))
    assert WANTED * 0.9 <= read <= WANTED
    assert "binary.txt" in "".join(said.split())

    index = LexicalIndex.open(root / "index")
    titles = list(dict.fromkeys(passage.title for passage in itertools.islice(index.passages(), 4000)))[:20]
    found = cli("search", root / "index", titles[3])[1]
    assert "".join(titles[3].split()) in "".join(found.split())
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
            "rollout.max_tokens_per_turn=32",
            "rollout.max_total_tokens=3000",
            "run.checkpoint_every=1",
        ):
            words += ["--set", setting]
        if form == "tools":
            killed = processes.start(*words, watch=["row"], kill_at=3)  # a step writes two rows: in the second
            assert killed.wait() == [-signal.SIGKILL], killed.said()
        status, said, err = cli(*words)
        assert status == 0, err
        assert ("Resuming" in said) == (form == "tools")
        metrics = [json.loads(line) for line in (root / f"run-{form}" / "metrics.jsonl").read_text().splitlines()]
        assert [row["step"] for row in metrics] == [1, 2, 3]
        assert metrics[-1]["rollout/invalid_frac"] == 0.0
