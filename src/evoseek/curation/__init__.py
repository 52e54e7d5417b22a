"""Jobs on files of questions: filtering, contamination, demonstrations, review."""
