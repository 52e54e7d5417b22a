"""Opening web pages safely and politely, and extracting what matters for a task."""
