import os
import signal
import threading
import time
from pathlib import Path

import pytest

from evoseek.learner import distributed
from evoseek.learner.distributed import is_orphaned, run_together

SCRIPT = """
import os, signal, sys, time
folder, rank = sys.argv[1], os.environ["RANK"]
if sys.argv[2] == "fails" and rank == "0":
    sys.exit(3)
def end(number, frame):
    open(f"{folder}/ended-{rank}", "w").write(os.environ["WORLD_SIZE"])
    sys.exit(7)
signal.signal(signal.SIGTERM, end)
open(f"{folder}/ready-{rank}", "w").write(str(os.getpid()))
time.sleep(10 if sys.argv[2] == "fails" else 60)
open(f"{folder}/survived-{rank}", "w").close()
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return [str(tmp_path / "script.py"), str(tmp_path)]


def test_every_process_runs_the_command(capfd):
    assert run_together(2, ["--version"]) == 0
    assert capfd.readouterr().out.count("evoseek ") == 2


def test_the_status_is_that_of_the_first_failure_and_those_that_hang_are_killed(program, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "_GRACE_S", 1.0)
    assert run_together(2, ["fails"], program=program) == 3
    assert not (tmp_path / "survived-1").exists()


def test_sigterm_is_passed_on(program, tmp_path):
    def send() -> None:
        while not all((tmp_path / f"ready-{rank}").exists() for rank in range(2)):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=send)
    thread.start()
    assert run_together(2, ["waits"], program=program) == 7
    thread.join()
    assert [Path(tmp_path, f"ended-{rank}").read_text() for rank in range(2)] == ["2", "2"]


def test_signals_are_handled_as_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_together(1, ["--version"])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_process_knows_that_its_launcher_has_died(monkeypatch):
    assert not is_orphaned()
    monkeypatch.setenv("EVOSEEK_LAUNCHER", str(os.getppid()))
    assert not is_orphaned()
    monkeypatch.setenv("EVOSEEK_LAUNCHER", str(os.getpid()))  # not the parent
    assert is_orphaned()
