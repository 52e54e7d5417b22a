"""The web: search providers, safe fetching, pages to text, the reading agent, and recordings of all of it."""
