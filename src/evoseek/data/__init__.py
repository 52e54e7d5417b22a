"""Making question files fit for training: filter, contamination, mixtures."""
