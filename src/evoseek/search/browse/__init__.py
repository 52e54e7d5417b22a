"""Opening web pages: safely, politely, and what of them matters for a task."""
