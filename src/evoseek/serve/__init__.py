"""Servers for other programs, over HTTP."""
