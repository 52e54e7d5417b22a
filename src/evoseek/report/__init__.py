"""What a run looks like from outside: metric files, progress, tables, plots."""
