"""llms.txt and llms-full.txt, which the site has for language models."""

from pathlib import Path
from runpy import run_path

import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LLMS = run_path(str(DOCS / "llms.py"))


def test_every_page_of_the_menu_is_listed_with_a_sentence_and_is_whole_in_one_file(tmp_path):
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text()) | {"docs_dir": DOCS, "site_dir": tmp_path}
    assert config["hooks"] == ["docs/llms.py"]
    LLMS["on_post_build"](config)
    listed = [line for line in (tmp_path / "llms.txt").read_text().splitlines() if line.startswith("- [")]
    whole = (tmp_path / "llms-full.txt").read_text()
    left_out = config.get("not_in_nav", "").split()
    pages = sorted({str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")} - {*left_out})
    assert sorted(line.split("](")[1].split("): ")[0] for line in listed) == pages
    for line in listed:
        assert len(line.split("): ", 1)[1]) > 10, line
    for page in pages:
        text = (DOCS / page).read_text()
        assert text.strip() in whole
        assert (tmp_path / page).read_text() == text


def test_sections_and_summaries_are_those_of_the_menu_and_the_pages():
    menu = [{"Begin": [{"Quick start": "index.md"}]}, {"Extend": "extend.md"}, "faults.md"]
    assert list(LLMS["pages"](menu)) == [
        ("Begin", "Quick start", "index.md"),
        ("", "Extend", "extend.md"),
        ("", "faults.md", "faults.md"),
    ]
    text = "# Title\n\n![picture](a.png)\n\nIt is **one** [thing](a.md), as in\n3.11. Another."
    assert LLMS["summary"](text) == "It is one thing, as in 3.11."
