"""What builds the files that the package ships; it is not installed with it."""
