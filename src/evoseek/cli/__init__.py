"""What the commands do, with a console to print on. `evoseek.cli` reads their options from the command line."""
