"""The task of each role: its prompt and its tools."""
