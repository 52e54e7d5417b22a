from functools import cache
from pathlib import Path
from runpy import run_path

import pytest


@pytest.fixture(scope="session")
def made():
    """Makes a tokenizer by its name, once."""
    makers = run_path(str(Path(__file__).parent / "made_tokenizers.py"))["MAKERS"]
    return cache(lambda name: makers[name]())
