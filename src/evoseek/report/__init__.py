"""Reporting on a run: metric files, progress, tables, plots."""
