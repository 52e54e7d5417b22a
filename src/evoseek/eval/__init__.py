"""Evaluation: score a policy on questions, with intervals and paired tests."""
