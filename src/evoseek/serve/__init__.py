"""Servers on the loopback interface."""
