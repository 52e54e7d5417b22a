"""Calling servers over HTTP: retries, circuit breaker, bounded concurrency."""
