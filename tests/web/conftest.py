"""One extractor for all tests here: its process takes a second to start."""

import pytest

from evoseek.web.extract import Extractor


@pytest.fixture(scope="session")
def extractor():
    extractor = Extractor(1, cpu_s=3, wall_s=30)
    yield extractor
    extractor.close()
