"""The checks before a run: what is installed and reachable, what fits, what would be trained. Nothing is written."""
