"""The gateway: any program as an agent, whose calls of the policy are recorded with the ids that were sampled."""
