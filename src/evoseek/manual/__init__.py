"""The manual of Python's standard library: real text that lies on every machine, as a corpus with questions."""
