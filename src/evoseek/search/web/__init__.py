"""The web as a search engine: providers and what lets thousands of rollouts use them."""
