"""Search engines: all answer `search(queries, k)` with passages, best first."""
