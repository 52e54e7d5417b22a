"""Recipes: one settings file a system and scale, which `--config` takes by name."""
