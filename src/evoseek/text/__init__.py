"""Text of any language: scripts, normal forms, near-duplicates, templates, decoding, and what a terminal shows."""
