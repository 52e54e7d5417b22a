import os
import signal
import subprocess
import sys

import pytest

from evoseek.search.lexical import LexicalIndex
from evoseek.training.interrupt import INTERRUPTED, end_on_interrupt, stop_on_interrupt
from evoseek.types import Passage


def test_the_first_asks_and_the_second_aborts():
    requests = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), stop_on_interrupt(lambda: requests.append(1)) as asked:  # noqa: PT012
        assert not asked()
        os.kill(os.getpid(), signal.SIGINT)
        assert asked()
        assert requests == [1]
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_request_to_terminate_asks_too_and_never_aborts():
    requests = []
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_interrupt(lambda: requests.append(1)) as asked:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert asked()
        assert requests == [1]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_request_to_terminate_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stop_on_interrupt(lambda: None) as asked:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not asked()
    finally:
        signal.signal(signal.SIGTERM, before)


LOADING = """
import signal, sys, weakref
from evoseek.cli.main import main

class Finder:
    def find_spec(self, name, *_):
        if name == "evoseek.run":
            thing = Finder()
            kept = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
            del thing  # the KeyboardInterrupt of a callback is lost

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
folder = sys.argv[1]
sys.argv = ["evoseek", "train"]
for option, name in (("--run-dir", "run"), ("--index", "index"), ("--questions", "questions.jsonl")):
    sys.argv += [option, f"{folder}/{name}"]
main()
"""


def test_an_interrupt_while_modules_are_loaded_is_not_lost(tmp_path):
    LexicalIndex.build(tmp_path / "index", [Passage("kalo#0", "kalo", "Kalo", "Kalo 's mayor is Meri .")])
    (tmp_path / "questions.jsonl").write_text('{"question": "what is Kalo \'s mayor ?", "golden_answers": ["Meri"]}\n')
    command = [sys.executable, "-c", LOADING, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == INTERRUPTED
    assert not (tmp_path / "run").exists()


def test_loading_leaves_the_handling_of_interrupts_as_it_was():
    for handler in (signal.default_int_handler, signal.SIG_IGN):
        before = signal.signal(signal.SIGINT, handler)
        try:
            with end_on_interrupt():
                assert (signal.getsignal(signal.SIGINT) is handler) == (handler is signal.SIG_IGN)
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)
