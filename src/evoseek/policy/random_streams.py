"""Random numbers that are a function of their purpose, never of the time at which they are drawn."""

from __future__ import annotations

import hashlib

import numpy as np


def turn_uniforms(seed: int, trajectory_id: str, turn: int, count: int) -> list[float]:
    """The first `count` uniforms in [0, 1) of the stream of (run seed, trajectory, turn), one per sampled token.

    The counter-based generator Philox is keyed by a BLAKE2b digest of the three, so that streams are independent and
    none depends on the order of arrival. The values have 53 bits, as float64 has: 24 from the stream itself and 29 from
    one that Philox keeps 2^128 draws ahead of it.
    """
    name = f"{seed}\x00{trajectory_id}\x00{turn}".encode()
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint64)
    stream = np.random.Philox(key=key)
    low = np.random.Generator(stream.jumped()).integers(1 << 29, size=count)
    high = np.random.Generator(stream).random(count, dtype=np.float32)
    return (high + low * 2.0**-53).tolist()
