"""The parts of a run and of every command: settings, defaults, memory, context."""
