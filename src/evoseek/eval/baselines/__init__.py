"""Baselines: ways to answer that train nothing, one in each file."""
