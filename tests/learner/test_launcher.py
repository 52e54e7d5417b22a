import signal

from evoseek.learner.launcher import run_together


def test_every_process_runs_the_command(capfd):
    assert run_together(2, ["--version"]) == 0
    assert capfd.readouterr().out.count("evoseek ") == 2


def test_the_status_is_that_of_the_first_failure(capfd, tmp_path):
    assert run_together(1, ["search", str(tmp_path / "none"), "x"]) == 2
    assert "There is no folder" in capfd.readouterr().err


def test_signals_are_handled_as_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_together(1, ["--version"])
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
