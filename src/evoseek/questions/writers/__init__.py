"""Question writers: passages to questions with answer, kind, hops and evidence."""
