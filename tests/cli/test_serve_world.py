"""`evoseek world serve`: what it prints and writes, and how it ends."""

import re
import signal
import socket
import subprocess
import sys

import httpx2
import pytest

from evoseek.cli.serve import serve_world
from evoseek.errors import ConfigError
from evoseek.questions.questions import load_questions

CODE = """
from pathlib import Path
from evoseek.cli.serve import serve_world
serve_world(entities=200, seed=1, port=0, questions=Path({!r}), count=20)
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
        answers = [httpx2.get(url, trust_env=False).status_code for url in (addresses[1], addresses[2])]
        run.send_signal(signal.SIGINT)
        rest, errors = run.communicate(timeout=30)
    assert answers == [200, 200]
    assert (run.returncode, errors) == (0, "")
    assert "page 1  search 1" in rest
    assert len(load_questions(questions)) == 20


def test_a_questions_file_that_is_there_is_left_as_it_is(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("mine")
    with pytest.raises(ConfigError, match="was not changed"):
        serve_world(questions=path)


def test_without_its_port_it_leaves_no_questions_behind(tmp_path):
    path = tmp_path / "questions.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="Cannot listen on"):
        serve_world(questions=path, port=taken.getsockname()[1])
    assert not path.exists()
