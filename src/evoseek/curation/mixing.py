"""Questions of several sources in a ratio, such as NQ : TriviaQA : HotpotQA : 2Wiki = 1 : 1 : 3 : 3 (DeepResearcher,
arXiv 2504.03160, section 4.3)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from evoseek.errors import ConfigError
from evoseek.questions.questions import folded, load_questions, save_questions
from evoseek.storage.files import check_new_file
from evoseek.text.printable import say
from evoseek.training.question_order import apportioned
from evoseek.types import Question


def mix(
    sources: Mapping[str, Sequence[Question]], ratio: Mapping[str, float], count: int, *, seed: int
) -> tuple[list[Question], Mapping[str, int]]:
    """Draw `count` questions in the ratio, no text twice (whatever its letter case and spaces); and how many each
    source was short of.

    Shares are rounded by the largest remainder. A source with too few questions gives all that it has and is not topped
    up from others, which would change the ratio. A question's id is "source/id", and its metadata names the `source`.
    Raises ConfigError unless `count` is above 0 and every source has a share above 0.
    """
    if count < 1 or not sources or sources.keys() != ratio.keys() or not all(0 < r < math.inf for r in ratio.values()):
        raise ConfigError(
            f"{count} questions cannot be mixed from {', '.join(sources) or 'nothing'} in the ratio {dict(ratio)}. "
            "Expected at least one question, and for every source a share above 0."
        )
    quotas = apportioned(ratio, count)
    seen: set[str] = set()
    drawn: list[Question] = []
    missing: dict[str, int] = {}
    for name, source in sources.items():
        before = len(drawn)
        for question in random.Random(f"{seed}/mixing/{name}").sample(source, len(source)):
            if len(drawn) - before == quotas[name]:
                break
            key = folded(question.text)
            if key not in seen:
                seen.add(key)
                metadata = {**question.metadata, "source": name}
                drawn.append(replace(question, id=f"{name}/{question.id}", metadata=metadata))
        missing[name] = quotas[name] - (len(drawn) - before)
    random.Random(f"{seed}/mixing").shuffle(drawn)
    return drawn, missing


def mix_questions(sources: Mapping[Path, float], out: Path, *, count: int, seed: int, console: Console) -> None:
    """Write `count` questions drawn from files in the ratio of their shares; a file's stem is the name of
    the source. Raises EvoseekError, also if two files have the same stem."""
    check_new_file(out)
    if len({path.stem for path in sources}) < len(sources):
        raise ConfigError("Two files have the same stem, which identifies a question's source. Rename one.")
    questions, missing = mix(
        {path.stem: load_questions(path) for path in sources},
        {path.stem: share for path, share in sources.items()},
        count,
        seed=seed,
    )
    save_questions(out, questions)
    taken = Counter(str(question.metadata["source"]) for question in questions)
    parts = ", ".join(f"{taken[name]} of {name}" for name in missing)
    say(console, f"{len(questions)} questions in {out}: {parts}.")
    for name, number in missing.items():
        if number:
            say(console, f"{name} has {number} too few for its share; nothing takes their place.")
