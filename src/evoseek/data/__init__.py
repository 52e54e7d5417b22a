"""Making what a run needs: indexing documents; writing, collecting, filtering, checking and mixing questions."""
