"""The made-up samples of the learner's tests."""

from tests.learner.conftest import make_samples

__all__ = ["make_samples"]
