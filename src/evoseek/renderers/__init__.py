"""Renderers: messages to token ids and back."""
