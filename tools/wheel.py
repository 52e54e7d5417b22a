"""Build the wheel, and try it in empty environments: one for each Python that is found.

    python tools/wheel.py                                   this Python (make wheel)
    python tools/wheel.py --all                             3.11 to 3.14, as far as they are found (make wheels)
    python tools/wheel.py --torch "torch --index-url URL"   another torch, as for `make demo`

It needs pip and a package index. An environment takes 1.5 GB with torch for the CPU and 6 GB with that for a GPU. It is
removed after the try, so that only one is there at a time.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
WORKS = "import sys; sys.exit('%d.%d' % sys.version_info[:2] != {!r})"
DOCUMENT, QUESTION = (
    "Humi Jeje's employer is Pipajo.\n",
    "What is Humi Jeje's employer?",
)  # which the tiny model can read
WORLD = "from evoseek import make_world; make_world('world', entities=200, questions=4)"
STEPS = (  # in a folder with documents/
    ("evoseek", "--version"),
    ("evoseek", "list", "recipes"),
    ("evoseek", "init", "project", "--documents", "documents", "--model", "tiny"),
    ("evoseek", "index", "--project", "project"),
    ("evoseek", "search", "--project", "project", QUESTION),
    ("evoseek", "ask", "--project", "project", QUESTION),
    ("python", "-c", WORLD),
    shlex.split(
        "evoseek train search-r1 --config search-r1/tiny --index world/index --questions world/questions.jsonl "
        "--run-dir run --set run.steps=1 --set questions.per_step=2 --set rollout.group_size=2"
    ),
    ("evoseek", "eval", "run", "--questions", "world/questions.jsonl", "--alone"),
)


class Tried(NamedTuple):
    """What became of one Python: the command that failed ("": none), its seconds and the environment's size."""

    version: str
    failed: str
    seconds: float
    megabytes: int


def found(versions: Sequence[str]) -> dict[str, str]:
    """Return the interpreters of these versions on PATH, of pyenv and of uv, by version."""
    places = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    there: dict[str, str] = {}
    for version in versions:
        named = (str(path) for place in places for path in sorted(place.glob(f"*{version}.*/bin/python{version}")))
        for candidate in filter(None, (shutil.which(f"python{version}"), *named)):
            works = subprocess.run([candidate, "-c", WORKS.format(version)], capture_output=True).returncode == 0
            if works:  # a shim of pyenv is on PATH for a version that is not chosen
                there[version] = candidate
                break
    return there


def build(folder: Path) -> Path:
    """Build the wheel into an emptied folder, and return its path."""
    shutil.rmtree(folder, ignore_errors=True)
    builder = folder / "build"
    subprocess.run([sys.executable, "-m", "venv", str(builder)], check=True)
    command = [str(builder / "bin" / "python"), "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True)
    shutil.rmtree(builder)
    return next(folder.glob("*.whl"))


def attempt(version: str, python: str, wheel: Path, torch: Sequence[str], steps: Sequence[Sequence[str]]) -> Tried:
    """Install the wheel in an empty environment, run the steps in an empty folder, and remove both."""
    began, folder = time.monotonic(), wheel.parent / f"python-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    (documents := folder / "documents").mkdir(parents=True)
    (documents / "Humi Jeje.txt").write_text(DOCUMENT, encoding="utf-8")
    programs = folder / "venv" / "bin"
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet"]
    setup = ([python, "-m", "venv", "venv"], [*install, *torch], [*install, str(wheel)], [*install[:3], "check"])
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "EVOSEEK"))}
    failed = ""
    for words in (*setup, *([str(programs / step[0]), *step[1:]] for step in steps)):
        print("+", shlex.join(words), flush=True)
        if subprocess.run(words, cwd=folder, env=environment).returncode:
            failed = shlex.join([Path(words[0]).name, *words[1:]])
            break
    megabytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) >> 20
    shutil.rmtree(folder)
    return Tried(version, failed, time.monotonic() - began, megabytes)


def main() -> int:
    """Try the wheel, print a table, and return 1 if a command failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="3.11 to 3.14, as far as they are found")
    parser.add_argument("--python", action="append", choices=VERSIONS, help="this version; may be repeated")
    parser.add_argument("--torch", default="torch==2.13.0", help="what pip takes for torch. Default: torch==2.13.0.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the wheel. Default: dist/.")
    options = parser.parse_args()
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    wanted = VERSIONS if options.all else options.python or [own]
    there = {own: sys.executable} if wanted == [own] else found(wanted)
    wheel = build(options.out.absolute())
    tried = [attempt(version, python, wheel, shlex.split(options.torch), STEPS) for version, python in there.items()]
    print(f"\n{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB\n| Python | Result | Seconds | MB |\n|---|---|---|---|")
    for one in tried:
        print(f"| {one.version} | {one.failed or 'works'} | {one.seconds:.0f} | {one.megabytes:,} |")
    for version in sorted(set(wanted) - set(there)):
        print(f"| {version} | not found | | |")
    return int(not tried or any(one.failed for one in tried))


if __name__ == "__main__":
    sys.exit(main())
