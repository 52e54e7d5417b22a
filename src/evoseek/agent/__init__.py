"""An answer, the passages that support it, how certain it is, and whether it is shown."""
