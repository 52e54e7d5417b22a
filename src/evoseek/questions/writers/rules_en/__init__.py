"""Questions by rules about English sentences: the writer `rules-en`."""
