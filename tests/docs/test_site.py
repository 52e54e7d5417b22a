"""The site that `make docs` builds."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADING = {"script": "src", "img": "src", "iframe": "src", "link": "href"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built as by `make docs`, in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    command = re.search(r"^docs:.*\n\t\$\(BIN\)/python (.+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    done = subprocess.run(
        [sys.executable, *command.split(), "--site-dir", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


class Loaded(HTMLParser):
    """The addresses that a page loads by itself."""

    def __init__(self, text):
        super().__init__()
        self.addresses = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if address := dict(attrs).get(LOADING.get(tag, "")):
            self.addresses.append(address)


def test_every_page_is_built_and_loads_nothing_from_another_host(site):
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")} <= pages
    for path in site.rglob("*.html"):
        assert [name for name in Loaded(path.read_text()).addresses if re.match(r"(\w+:)?//", name)] == [], path
    for path in site.rglob("*.css"):
        assert "@import" not in path.read_text()
        assert re.findall(r"url\(\W?https?:", path.read_text()) == []
