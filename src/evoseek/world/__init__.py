"""The generated world: grammar, documents, questions, oracle, site, a server with faults."""
