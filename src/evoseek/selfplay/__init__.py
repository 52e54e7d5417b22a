"""Self-play: proposing, filtering, verifying and solving questions."""
