"""A server that is told to stop."""

import os
import signal

import pytest
from starlette.applications import Starlette

from evoseek.serve.connection import StoppableServer, listen


@pytest.fixture
def missed():
    """The signals that the server did not take, with the handlers as they were put back in the end."""
    numbers: list[int] = []
    before = {one: signal.signal(one, lambda n, _: numbers.append(n)) for one in (signal.SIGTERM, signal.SIGINT)}
    yield numbers
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_as_soon_as_it_has_said_where_it_is_ends(missed, number):
    def started(url):
        os.kill(os.getpid(), number)
        assert missed == []

    listen(StoppableServer(Starlette(), drain_s=1), "127.0.0.1", 0, started=started)
