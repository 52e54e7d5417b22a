"""Mixing questions of several files. No torch is loaded for this."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from evoseek.cli.new_file import check_new_file
from evoseek.corpus.questions import load_questions, save_questions
from evoseek.data.mixing import mix
from evoseek.errors import ConfigError
from evoseek.report.printable import say


def mix_questions(sources: Mapping[Path, float], out: Path, *, count: int, seed: int, console: Console) -> None:
    """Write `count` questions drawn from files in the ratio of their shares; a file's name without its ending is that
    of the source. Raises EvoseekError, also if two files have one name."""
    check_new_file(out)
    if len({path.stem for path in sources}) < len(sources):
        raise ConfigError("Two of the files have the same name, by which a question's source is told. Rename one.")
    mixture = mix(
        {path.stem: load_questions(path) for path in sources},
        {path.stem: share for path, share in sources.items()},
        count,
        seed=seed,
    )
    save_questions(out, mixture.questions)
    taken = ", ".join(f"{number} of {name}" for name, number in mixture.taken.items())
    say(console, f"{len(mixture.questions)} questions in {out}: {taken}.")
    for name, number in mixture.missing.items():
        if number:
            say(console, f"{name} has {number} too few for its share; nothing takes their place.")
