"""Files that are written whole or not at all: run directories, checkpoints, logs of JSON lines, metrics."""
