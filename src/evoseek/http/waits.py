"""How long to wait before a server is asked again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tenacity import wait_exception, wait_random_exponential
from tenacity.wait import wait_base


class PassingError(Exception):
    """A failure that may pass; the server asks to be left alone for `wait_s` seconds."""

    def __init__(self, what: str, wait_s: float = 0.0) -> None:
        super().__init__(what)
        self.wait_s = wait_s


class BusyError(PassingError):
    """The server is up, and is asked too often."""


def back_off(wait_s: float, max_wait_s: float) -> wait_base:
    """What to wait before the n-th repetition: 0 to wait_s * 2**(n - 1) seconds, and what the server asks for."""
    return wait_exception(_asked_wait) + wait_random_exponential(wait_s, max_wait_s)


def _asked_wait(error: BaseException) -> float:
    return error.wait_s if isinstance(error, PassingError) else 0.0


def seconds_of(retry_after: str) -> float:
    """The seconds that a Retry-After header means (RFC 9110, 10.2.3: a number, or a date); 0 if it means nothing."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", retry_after.strip()):
        return float(retry_after)
    try:
        when = parsedate_to_datetime(retry_after)
        wait = when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return 0.0
    return max(wait.total_seconds(), 0.0)
