"""Rewards: from a finished trajectory to a number."""
