"""Random numbers that are a function of their purpose, never of the time at which they are drawn."""

from __future__ import annotations

import hashlib

import numpy as np


def turn_uniforms(seed: int, trajectory_id: str, turn: int, count: int) -> list[float]:
    """The first `count` uniforms in [0, 1) of the stream of (run seed, trajectory, turn), one per sampled token.

    The counter-based generator Philox is keyed by a BLAKE2b digest of the three, so that streams are independent and
    none depends on the order of arrival. The values have 24 bits, as float32 has: they stay below 1 in any arithmetic.
    """
    name = f"{seed}\x00{trajectory_id}\x00{turn}".encode()
    key = np.frombuffer(hashlib.blake2b(name, digest_size=16).digest(), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count, dtype=np.float32).tolist()
