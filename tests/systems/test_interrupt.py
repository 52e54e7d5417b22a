import os
import signal

import pytest

from evoseek.systems.interrupt import stop_on_interrupt


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
