"""What the long commands of the command line do, with a console to say it on."""
