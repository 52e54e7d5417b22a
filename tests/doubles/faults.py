"""Responses of a web server, right ones and false ones: faults as switches."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from functools import cache

from evoseek.errors import ConfigError
from evoseek.world.server import Response

BOMB_BYTES = 64 * 2**20  # of the body that a compression bomb unpacks to
INTERNAL = (  # where no client should follow: metadata, loopback and private addresses, in several spellings
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1:22/",
    "http://localhost/",
    "http://10.0.0.1/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://[::1]/",
    "http://[::ffff:169.254.169.254]/",
)
CAPTCHA = b"""<!doctype html>
<html lang="en"><head><title>Just a moment...</title></head>
<body><h1>Checking that you are not a robot</h1>
<p>We have seen unusual traffic from your network. Please complete the CAPTCHA to go on.</p>
<form id="challenge-form"><div class="g-recaptcha" data-sitekey="none"></div></form>
<noscript>Enable JavaScript and cookies to continue.</noscript></body></html>
"""


class Fault(StrEnum):
    """A fault: what happens instead of a correct answer."""

    TOO_MANY = "too_many"  # 429 with Retry-After
    UNAVAILABLE = "unavailable"  # 503
    CAPTCHA = "captcha"  # 200, and a page that asks for a person
    RESET = "reset"  # the connection is reset (RST)
    SLOW = "slow"  # the right response, its body in small pieces
    WRONG_LENGTH = "wrong_length"  # the right response, but its length says more than there is
    BOMB = "bomb"  # 200, and a body that unpacks to 64 MB
    INTERNAL = "internal"  # 302 to an address that is not public
    HANG = "hang"  # nothing, until the client leaves


class Faults:
    """Switches for faults: a share of the requests for each.

    The fault of a request is drawn by (`seed`, the request, how often it was made before): a retry can succeed, and the
    order in which different requests arrive does not matter.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._asked = Counter[str]()
        self.shares: dict[Fault, float] = {}

    def set(self, shares: Mapping[str, float]) -> None:
        """Turn these on and all others off, from the next request on. Raises ConfigError."""
        unknown = sorted(set(shares) - set(Fault))
        if unknown:
            raise ConfigError(f"There is no fault {unknown[0]!r}. There are: {', '.join(Fault)}.")
        if not all(share >= 0 for share in shares.values()) or not sum(shares.values()) <= 1 + 1e-9:
            given = ", ".join(f"{name} = {share}" for name, share in shares.items())
            raise ConfigError(f"Shares of faults are from 0 to 1, and no more than 1 together; got {given}.")
        self.shares = {Fault(name): share for name, share in shares.items()}

    def draw(self, asked: str) -> Fault | None:
        """The fault of this request; None: no fault."""
        number = self._asked[asked]
        self._asked[asked] += 1
        left = random.Random(f"{self._seed}/fault/{asked}/{number}").random()
        for fault, share in self.shares.items():
            left -= share
            if left < 0:
                return fault
        return None


def false_response(fault: Fault, asked: str, retry_after_s: int) -> Response | None:
    """The response to send instead; None for faults in how the right response is sent."""
    match fault:
        case Fault.TOO_MANY:
            return Response(429, b"Too many requests.", headers=(("retry-after", str(retry_after_s)),))
        case Fault.UNAVAILABLE:
            return Response(503, b"Service unavailable.")
        case Fault.CAPTCHA:
            return Response(200, CAPTCHA)
        case Fault.BOMB:
            return Response(200, _bomb(), headers=(("content-encoding", "gzip"),))
        case Fault.INTERNAL:
            return Response(302, headers=(("location", random.Random(f"internal/{asked}").choice(INTERNAL)),))
        case _:
            return None


@cache
def _bomb() -> bytes:
    """64 MB of spaces, packed to about 64 KB."""
    packer = zlib.compressobj(9, wbits=31)  # gzip
    piece = b" " * 2**20
    return b"".join([*(packer.compress(piece) for _ in range(BOMB_BYTES // len(piece))), packer.flush()])
