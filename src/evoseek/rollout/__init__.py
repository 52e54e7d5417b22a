"""One rollout as a coroutine, groups of rollouts, and their conversion to training samples and records on disk."""
