"""The training loop of every system, and the updates that turn rollouts into optimizer steps."""
