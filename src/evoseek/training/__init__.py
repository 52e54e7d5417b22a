"""The loop around every system, and the updates that turn rollouts into optimizer steps."""
