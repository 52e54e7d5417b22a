"""`raises("index.missing")`: as pytest.raises, for an error of evoseek by its code."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evoseek.errors import EvoseekError


@contextmanager
def raises(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[EvoseekError]]:
    """`match` is for what the text has to hold of the case itself, as a name or a number."""
    with pytest.raises(EvoseekError, match=match) as caught:
        yield caught
    assert caught.value.code == code, caught.value
