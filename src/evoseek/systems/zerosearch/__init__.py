"""ZeroSearch: a simulated search engine, and the data that tunes one."""
