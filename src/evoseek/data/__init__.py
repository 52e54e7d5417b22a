"""Preparing question files for training: filtering, contamination, mixing."""
