"""A cold start: from documents alone to a policy that searches them, before any question or label exists."""
