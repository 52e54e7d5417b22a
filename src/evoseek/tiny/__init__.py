"""Weights of the embedded policies, each with the card that says how it was made."""
