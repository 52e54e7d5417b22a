"""The sampler of vLLM, and the servers that it starts."""
