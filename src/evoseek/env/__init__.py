"""The task of each role: how it is asked and which tools it has."""
