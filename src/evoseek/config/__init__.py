"""Parts and their settings: what can be chosen, read from TOML and the command line, checked, and built."""
