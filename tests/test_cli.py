import os
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys
atexit.register(print, "taken down")
from evoseek.cli import main
sys.argv = ["evoseek", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("words", "status"), [(["--help"], 0), (["train", "nothing", "--run-dir", "nowhere"], 2)])
@pytest.mark.parametrize("size", ["1", "2"])
def test_processes_of_several_end_at_once_with_their_status_and_all_that_they_said(tmp_path, words, status, size):
    """Taking down the interpreter may abort one that talked to others; one that is alone ends as usual."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, "WORLD_SIZE": size},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == status
    assert ("taken down" in done.stdout) == (size == "1")
    assert "Usage" in done.stdout if status == 0 else "There is no system" in done.stderr
