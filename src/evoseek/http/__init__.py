"""Calling servers over HTTP: retries, bounded concurrency, circuit breaker."""
