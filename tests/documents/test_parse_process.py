"""An answer belongs to its request, whatever happens between the two. (How parsers fail: tests/search/browse.)"""

import os
import signal
import threading
import time

import pytest

from evoseek.documents.parse_process import ParseProcess


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """Answers a request with its body, a second later where that is "slow"."""
    (tmp_path / "slow_worker.py").write_text(
        "import time\ndef answer(header, body):\n"
        "    time.sleep(1.0 * (body == b'slow'))\n    return {'body': body.decode()}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    process = ParseProcess("slow_worker:answer", cpu_s=5, wall_s=20.0, memory_bytes=2**30)
    assert process.parse({}, b"first") == {"body": "first"}
    yield process
    process.close()


@pytest.fixture
def interruptible():
    """Ctrl-C raises here, too, where these tests were started in the background and so with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_request_leaves_no_answer_for_the_next(slow):
    main = threading.main_thread().ident
    interrupt = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        slow.parse({}, b"slow")
    interrupt.join()
    assert [slow.parse({}, body)["body"] for body in (b"a", b"b")] == ["a", "b"]
    assert len(slow.pids) == 1


def test_a_forked_child_that_is_killed_in_a_request_takes_no_answer_and_leaves_none(slow):
    (own,) = slow.pids
    child = os.fork()
    if not child:
        slow.parse({}, b"slow")
        os._exit(0)
    time.sleep(0.5)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert [slow.parse({}, body)["body"] for body in (b"a", b"b")] == ["a", "b"]
    assert slow.pids == (own,)


def test_a_forked_child_parses_with_a_process_of_its_own(slow):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        done = slow.parse({}, b"child")["body"] == "child" and slow.pids
        os.write(writing, str(done).encode())
        slow.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 99).decode() not in ("False", "()", str(slow.pids))
    assert slow.parse({}, b"a") == {"body": "a"}
