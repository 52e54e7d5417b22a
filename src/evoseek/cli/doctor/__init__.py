"""`evoseek doctor`: checks of an installation, of settings and of services."""
