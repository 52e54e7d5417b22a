"""Documents of the user's, cut into passages; questions; and the generated world."""
