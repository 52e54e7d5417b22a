"""What a page of Markdown holds: blocks of code, the commands in them and in its sentences, links and headings."""

import re
import shlex
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"^ *```(\w*)")
_ASSIGNED = re.compile(r"^(?:[A-Z_]+=\S* +)+")
_SHELL = ("", "sh", "console")
_PROGRAMS = ("evoseek", "make", "pip", "python", "torchrun")


class Block(NamedTuple):
    """A block of code; the language is "" where none is named."""

    language: str
    text: str


def blocks(page: str) -> list[Block]:
    """Fenced blocks, and those that are indented by four spaces after an empty line."""
    found, lines, at = [], page.splitlines(), 0
    while at < len(lines):
        if fence := _FENCE.match(lines[at]):
            end = next(number for number in range(at + 1, len(lines)) if _FENCE.match(lines[number]))
            found.append(Block(fence[1], "\n".join(lines[at + 1 : end])))
            at = end + 1
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            end = at
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            found.append(Block("", "\n".join(line[4:] for line in lines[at:end])))
            at = end
        else:
            at += 1
    return found


def files(page: str) -> dict[str, str]:
    """The files that a page prints whole: fenced blocks under a line with nothing but a name."""
    found = re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```$", page, flags=re.M | re.S)
    return dict(found)


def commands(page: str) -> Iterator[list[str]]:
    """The words of each command in the shell blocks of a page, without comments and variables."""
    for block in blocks(page):
        if block.language in _SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _commands(line.strip())


def _commands(line: str) -> Iterator[list[str]]:
    """Those of a line. What does not begin like a program is output, or not ours."""
    for part in line.removeprefix("$ ").split(" && "):
        if (part := _ASSIGNED.sub("", part)).split(" ")[0] in _PROGRAMS:
            words = shlex.split(part, comments=True)
            yield words[words.index("evoseek") :] if words[0] == "torchrun" and "evoseek" in words else words


def mentioned(page: str) -> Iterator[list[str]]:
    """The words of each `evoseek ...` and `python ...` in the sentences and tables of a page."""
    prose = re.sub(r"^ *```.*?^ *```", "", page, flags=re.M | re.S)
    for text in re.findall(r"`((?:evoseek|python) [^`]+)`", prose):
        yield shlex.split(" ".join(text.replace("\\|", "|").split()), comments=True)


def links(page: str) -> list[str]:
    """The targets of links and pictures, without those to other hosts."""
    prose = re.sub(r"^ *```.*?^ *```|`[^`]*`", "", page, flags=re.M | re.S)
    targets = re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", prose)
    return [target for target in targets if not re.match(r"\w+:", target)]


def anchors(page: str) -> set[str]:
    """The anchors of the headings, as mkdocs and GitHub spell them."""
    prose = re.sub(r"^ *```.*?^ *```", "", page, flags=re.M | re.S)
    plain = (re.sub(r"[^\w\s-]", "", title).strip().lower() for title in re.findall(r"^#+ (.+)$", prose, re.M))
    return {re.sub(r"[-\s]+", "-", title) for title in plain}
