"""Calling servers over HTTP: retries, breaker, the bound on calls at once."""
