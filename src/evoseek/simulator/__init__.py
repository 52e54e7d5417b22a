"""Making a simulated search engine: collect, label, tune, check."""
