"""The user's documents, cut into passages; questions; answers."""
