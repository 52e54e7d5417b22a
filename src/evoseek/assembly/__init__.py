"""What a run and every command are built from: settings of a run, defaults, memory, context."""
