"""A sampler over servers of vLLM, spoken to over HTTP."""
