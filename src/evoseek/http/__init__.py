"""Calling servers over HTTP: retries, breaker, rate."""
