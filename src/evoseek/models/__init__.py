"""Models: loading, adapters, GGUF, shapes, and the memory of a machine."""
