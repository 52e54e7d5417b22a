"""The work of the long commands of the command line, which print to a console."""
