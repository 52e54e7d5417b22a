"""The loop around every system, and what turns rollouts into optimizer steps."""
