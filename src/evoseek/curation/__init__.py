"""Jobs on files of questions: filtering, contamination, audit, review."""
