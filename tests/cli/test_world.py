"""`evoseek world serve`: what it prints and writes, and how it ends."""

import re
import signal
import socket
import subprocess
import sys

import httpx2
import pytest
from rich.console import Console

from evoseek.cli.world import serve
from evoseek.corpus.questions import load_questions
from evoseek.errors import ConfigError

SETTINGS = {"entities": 200, "seed": 1, "split": "train", "port": 0, "faults": (), "questions": None, "count": 20}
CODE = """
from pathlib import Path
from rich.console import Console
from evoseek.cli.world import serve
serve(
    entities=200, seed=1, split="train", port=0, faults=["search.unavailable=1"], questions=Path({!r}), count=20,
    console=Console(),
)
"""


def test_it_serves_until_ctrl_c_and_then_says_what_was_asked(tmp_path):
    questions = tmp_path / "questions.jsonl"
    code = CODE.format(str(questions))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        said = ""
        while "searxng" not in said:
            said += run.stdout.readline()
        addresses = re.findall(r"http://127[^\s']+", said)
        answers = [httpx2.get(url, trust_env=False).status_code for url in (addresses[1], addresses[3])]
        run.send_signal(signal.SIGINT)
        rest, errors = run.communicate(timeout=30)
    assert answers == [200, 503]
    assert (run.returncode, errors) == (0, "")
    assert "page 1  search 1  search unavailable 1" in rest
    assert len(load_questions(questions)) == 20


@pytest.mark.parametrize("fault", ["hang", "hang=often", "image.hang=0.1", "fire=0.1", "search.hang=2"])
def test_faults_that_are_none_are_refused(fault):
    with pytest.raises(ConfigError):
        serve(**SETTINGS | {"faults": [fault]}, console=Console())


def test_a_questions_file_that_is_there_is_left_as_it_is(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="is left as it is"):
        serve(**SETTINGS | {"questions": path}, console=Console())


def test_without_its_port_it_leaves_no_questions_behind(tmp_path):
    path = tmp_path / "questions.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="Cannot listen on"):
        serve(**SETTINGS | {"questions": path, "port": taken.getsockname()[1]}, console=Console())
    assert not path.exists()
