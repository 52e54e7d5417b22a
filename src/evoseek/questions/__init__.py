"""Questions and their wording: files of questions, demonstrations, verdicts, and rules of wording."""
