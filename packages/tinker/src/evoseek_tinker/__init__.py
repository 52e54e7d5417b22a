"""The learner and the sampler `tinker`: both compute at a service that speaks the Tinker API."""
