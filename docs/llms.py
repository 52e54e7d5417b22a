"""The pages for language models, beside the site: `llms.txt` lists them, `llms-full.txt` holds them all (llmstxt.org).

A hook of mkdocs: `make docs` writes both into the site, and the Markdown of each page beside its HTML.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def on_post_build(config: Mapping[str, Any], **_: object) -> None:
    """Write the files, in the order of the menu."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    lines, texts = [f"# {config['site_name']}\n", f"> {config['site_description']}.\n"], list[str]()
    for section, title, file in pages(config["nav"]):
        text = (docs / file).read_text(encoding="utf-8")
        heading = f"\n## {section or 'Pages'}\n"
        lines += [] if heading in lines else [heading]
        lines.append(f"- [{title}]({file}): {summary(text)}")
        texts.append(f"<!-- {file} -->\n\n{text.strip()}\n")
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(docs / file, site / file)
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (site / "llms-full.txt").write_text("\n".join(texts), encoding="utf-8")


def pages(nav: list[Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the section, title and file of each page of the menu."""
    for entry in nav:
        for title, inner in (entry if isinstance(entry, dict) else {entry: entry}).items():
            if isinstance(inner, str):
                yield section, title, inner
            else:
                yield from pages(inner, title)


def summary(text: str) -> str:
    """Return the first sentence of a page's first paragraph, without markup."""
    blocks = (block for block in re.split(r"\n\s*\n", text) if re.match(r"[A-Za-z`*\[]", block))
    first = " ".join(next(blocks, "").split())
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first).replace("**", "")
    return re.split(r"(?<=[.!?:])\s+(?=[A-Z`*])", plain)[0].rstrip(":")
