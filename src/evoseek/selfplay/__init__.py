"""Self-play: where questions and their difficulty come from."""
