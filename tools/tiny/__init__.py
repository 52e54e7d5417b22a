"""Builds the tiny policies from scratch: `python -m tools.tiny DIRECTORY`, in the root of a checkout."""
