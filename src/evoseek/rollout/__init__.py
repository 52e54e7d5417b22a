"""One rollout as a coroutine, groups of them, and what becomes of them: training samples and a record on disk."""
