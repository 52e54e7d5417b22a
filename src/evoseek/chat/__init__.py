"""Chat models, from messages to text: an in-process model, an endpoint."""
