"""Calls of servers that the user names: connections, repetitions and waits, and what a server says."""
