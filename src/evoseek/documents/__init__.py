"""Files to passages: formats, archives, tables, and a report of what was read."""
