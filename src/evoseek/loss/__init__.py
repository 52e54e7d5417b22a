"""Losses: `[B, T]` tensors in, a scalar and its metrics out. They know neither models nor rewards."""
