"""The viewer of runs: one HTML page without a server, and a list for the terminal."""
