"""The embedded sampler, in torch."""
