"""The web as a search engine: providers, and the layers that let thousands of rollouts use them."""
