"""The command line: `main` reads it, and each other module does what a group of commands is for."""
