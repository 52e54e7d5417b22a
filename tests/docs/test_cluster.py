"""The table of memory in docs/train.md."""

from pathlib import Path
from runpy import run_path

DOCS = Path(__file__).parents[2] / "docs"


def test_its_table_is_what_the_script_prints():
    made = run_path(str(DOCS / "cluster.py"))
    assert made["table"]() in (DOCS / "train.md").read_text(), "run `python docs/cluster.py`"


def test_the_numbers_of_parameters_are_those_that_the_models_are_known_for():
    """Qwen2.5's cards: .49, 1.54, 3.09, 7.61 and 32.5 billion."""
    shape = run_path(str(DOCS / "cluster.py"))["shape"]
    found = [round(shape(f"Qwen2.5-{size}B").parameters / 1e9, 2) for size in ("0.5", "1.5", "3", "7", "32")]
    assert found == [0.49, 1.54, 3.09, 7.62, 32.76]
