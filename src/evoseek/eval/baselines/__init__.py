"""Baselines: ways to answer that train nothing."""
