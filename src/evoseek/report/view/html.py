"""The viewer's page: one HTML file that opens without a server, for large runs with data files beside it.

Nothing is loaded from elsewhere. The Content-Security-Policy allows only the page's own script and style, by their
hashes. Texts of rollouts are data, which the script shows as text, never as markup.

    view.html     the page, with an index of all rollouts; the details too if they are small
    view.data/    the details of a larger run: scripts that the page loads when needed, each with one packed chunk.
                  They are scripts since a page of file:// can load nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from evoseek.errors import ConfigError, RunError, disk_text
from evoseek.questions.outcomes import MEANINGS
from evoseek.report.view.source import RunSource
from evoseek.report.view.table import CHUNK, RolloutTable, packed, script_json, source_hash
from evoseek.storage.files import remove_directory, replace_directory, write_atomic
from evoseek.storage.metrics import CHARTS
from evoseek.storage.runs import flatten

MARK = "<!doctype html>\n<!-- Written by evoseek view. -->"
"""The beginning of every page: a file without it is not overwritten."""

_DATA_MARK = "evoseekChunk"  # the beginning of every data file
_INLINE = 3_000_000  # maximum characters of chunks within the page
_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("elements", "data", "charts", "list", "rollout", "episode", "compare", "main")


@dataclass(frozen=True, slots=True)
class ViewPage:
    """The files of a view: the page, and the data files' texts by name (none for a small run)."""

    html: str
    data: Mapping[str, str]

    def write(self, path: Path) -> None:
        """Write the page to `path` and the data into the same name with `.data` instead of `.html`, replacing an
        earlier view.

        Raises ConfigError if something else is there, RunError if writing fails.
        """
        folder = data_folder(path)
        try:
            for reason in _reasons(path, folder):
                raise ConfigError(f"{reason} It was not changed. Give another file with --out.")
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.data:
                with replace_directory(folder) as made:
                    for name, text in self.data.items():
                        (made / name).write_text(text, encoding="ascii")
            elif folder.exists():
                remove_directory(folder)
        except OSError as error:
            raise RunError(disk_text(error, f"{folder} cannot be written")) from error
        write_atomic(path, self.html)


def data_folder(path: Path) -> Path:
    """Return the folder of a page's data files."""
    return path.with_name(f"{path.stem}.data")


def make_page(
    sources: Sequence[RunSource], folder: str, *, now: datetime | None = None, inline: int = _INLINE
) -> ViewPage:
    """Make the page of one run, or of two side by side. `folder` names its data folder; up to `inline` characters need
    none."""
    tables = [RolloutTable.of(source) for source in sources]
    chunks = {f"{run}-{number}": chunk for run, table in enumerate(tables) for number, chunk in enumerate(table.chunks)}
    chunks |= {f"{run}-tokens": packed(table.token_texts) for run, table in enumerate(tables)}
    build = hashlib.sha256("".join(chunks.values()).encode("ascii")).hexdigest()[:16]
    is_inline = sum(map(len, chunks.values())) <= inline
    index = {
        "build": build,
        "folder": None if is_inline else folder,
        "made": f"{now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "chunk": CHUNK,
        "charts": CHARTS,
        "meanings": MEANINGS,
        "runs": [_run(source, table) for source, table in zip(sources, tables, strict=True)],
        "differences": _differences(sources),
    }
    title = " and ".join(f"{source.name} ({source.system})" for source in sources)
    html = _html(title, index, chunks if is_inline else {})
    if is_inline:
        return ViewPage(html, {})
    return ViewPage(
        html, {f"{key}.js": f'{_DATA_MARK}("{build}","{key}","{chunk}")\n' for key, chunk in chunks.items()}
    )


def _run(source: RunSource, table: RolloutTable) -> dict[str, Any]:
    steps = [row["step"] for row in source.rows]
    names = sorted({name for row in source.rows for name in row} - {"step"})
    return {
        "name": source.name,
        "path": str(source.directory),
        "system": source.system,
        "headline": source.headline,
        "model": source.model,
        "scores": source.scores if source.is_evaluation else None,
        "running": source.is_running,
        "metrics": {"steps": steps, "values": {name: [row.get(name) for row in source.rows] for name in names}},
        "warnings": [{"step": step, "text": text} for step, text in source.warnings],
        "recorded": bool(source.credits),
        **table.json(),
        "notes": list(dict.fromkeys(source.notes)),
    }


def _differences(sources: Sequence[RunSource]) -> list[list[str]]:
    if len(sources) < 2:
        return []
    first, second = (flatten(source.config) for source in sources[:2])
    return [
        [name, str(first.get(name, "-")), str(second.get(name, "-"))]
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]


def _html(title: str, index: Mapping[str, object], chunks: Mapping[str, str]) -> str:
    files = "\n".join(_read(f"{name}.js") for name in _SCRIPTS)
    script = f'"use strict";\n(() => {{\n{files}}})();\n'  # in their own scope
    style = _read("view.css")
    page = Template(_read("view.html"))
    return MARK + page.substitute(
        policy=content_policy(script, style, loads=not chunks),
        title=escape(title).encode(errors="replace").decode(),  # a folder's name may not be UTF-8
        style=style,
        index=script_json(index),
        chunks="\n".join(
            f'<script type="text/plain" id="chunk-{key}">{chunk}</script>' for key, chunk in chunks.items()
        ),
        script=script,
    )


def content_policy(script: str, style: str, *, loads: bool) -> str:
    """Return the Content-Security-Policy: only this script and style; with `loads`, also scripts that the script adds,
    with addresses only by its own rule (Trusted Types)."""
    added = " 'strict-dynamic'" if loads else ""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {source_hash(script)}{added}",
            f"style-src {source_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types evoseek",
        )
    )


def _read(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")


def _reasons(path: Path, folder: Path) -> Iterator[str]:
    """Yield why a page must not be written there."""
    if path.suffix != ".html":
        yield f"{path} is not the name of a page: it does not end in .html."
    if path.is_dir():
        yield f"{path} is a folder."
    elif path.exists() and not path.read_bytes().startswith(MARK.encode()):
        yield f"{path} exists already, and was not written by `evoseek view`."
    if folder.exists():
        foreign = [one.name for one in folder.iterdir() if not _is_data(one)] if folder.is_dir() else [folder.name]
        if foreign:
            yield f"{folder}, where the data of the page would be written, holds {foreign[0]}."


def _is_data(path: Path) -> bool:
    if path.suffix != ".js" or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_DATA_MARK)) == _DATA_MARK.encode()
