"""The command line: `main` parses it, and each other module has the commands of a group."""
