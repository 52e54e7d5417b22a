"""Samplers: token ids in, token ids out."""
