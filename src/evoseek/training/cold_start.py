"""The cold start, the first phase of a run: it writes questions about the documents, and the policy learns
demonstrations of some; the run then trains on the questions. If each question is searched before the first turn, the
policy can answer without demonstrations, and learns none.

    run/cold_start/
      report.json           questions made, kept and left out; written last
      demonstrations.jsonl  learnt first
      questions.jsonl       trained on
      held_out.jsonl        never trained on: for the score
      sft/                  the run that learns the demonstrations

Each part is made once, also if the run is interrupted and resumed.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from evoseek.assembly.context import Context
from evoseek.assembly.inputs import inputs_of, questions_to_write
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import build
from evoseek.config.sections import lookup, with_setting
from evoseek.errors import ConfigError, DataError, RunError
from evoseek.models.load import load_tokenizer
from evoseek.questions.demonstrations import demonstration_row
from evoseek.questions.questions import evidence_of, save_questions
from evoseek.questions.writers.base import QuestionWriter, QuestionWriterSettings
from evoseek.questions.writers.checking import STATED_IN, Item, Written, checked_questions
from evoseek.storage.files import json_digest, write_atomic
from evoseek.storage.runs import RunDirectory, flatten
from evoseek.text.printable import say
from evoseek.training.stages import check_run, check_stages

DEMONSTRATIONS, TIMES = 960, 4
"""Number of learnt demonstrations, in 57 steps of 16, and of repetitions if there are fewer. Epochs are whole, so two
would take up to twice as long."""
HELD_OUT = 0.1
"""Share of the questions that is held out."""
FOLDER = "cold_start"
RULES = "rules-en"
_WARM_UP = 4  # of the 57 steps
_CHECKPOINT_EVERY = 5
_FEW = 200  # questions
_EXAMPLES = 6
_ROLES = ("rollout", "proposer")
_LIMITS = ("max_turns", "max_tool_calls", "max_tokens_per_turn", "max_total_tokens")


class ColdStart:
    """The files of a cold start in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model = folder, folder / "sft"
        self.report = folder / "report.json"
        self.demonstrations, self.questions, self.held_out = (
            folder / f"{name}.jsonl" for name in ("demonstrations", "questions", "held_out")
        )

    @property
    def writing_seconds(self) -> float:
        """The seconds that writing the questions took. Raises RunError for a damaged report."""
        seconds = _read(self.report).get("seconds")
        return seconds if isinstance(seconds, float) else 0.0


def cold_start(
    settings: TrainingSettings,
    run: RunDirectory,
    *,
    console: Console,
    learn: Callable[[Path, Mapping[str, object]], bool],
) -> TrainingSettings | None:
    """Make or resume the cold start of a run; return the settings for training after it, unchanged without a cold
    start. None if Ctrl-C ended it.

    `learn` fine-tunes by a mapping of settings in a directory, and returns False if Ctrl-C ended it. Raises
    EvoseekError, also if the directory holds another cold start.
    """
    number = lookup(settings, "cold_start.questions") or 0
    if not number:
        return settings
    files = ColdStart(run.path / FOLDER)
    after = with_setting(settings, "policy.model", str(files.model.absolute())) if settings.demonstrates else settings
    if questions_to_write(settings):
        after = with_setting(after, "questions.path", str(files.questions.absolute()))
    if run.is_begun or settings == after:
        return after
    check_run(settings, run, int(os.environ.get("WORLD_SIZE", "1")))
    load_tokenizer(settings.policy.model)  # find a wrong name before minutes of writing
    with run.locked():
        _write_once(settings, files, number, console)
        check_stages(after)  # before minutes of learning: a stage's share may have no questions left
        if not settings.demonstrates:
            return after
        say(console, f"Cold start: learning {files.demonstrations.name} ...")
        return after if learn(files.model, _warm(settings, files)) else None


def _write_once(settings: TrainingSettings, files: ColdStart, number: int, console: Console) -> None:
    """Write the questions, unless they are there."""
    index = inputs_of(settings)["search.index"].sha256
    search, proposes = settings.search, lookup(settings, "proposer.show_source") is not None
    made_from = [index, number, settings.run.seed, search.name, search.top_k, proposes]
    writer = _writer_settings(settings)
    known = [json_digest([*made_from, writer.resolved()])]
    if writer.name == RULES:  # as in earlier releases, which had no other writer
        known += [json_digest(made_from), json_digest([index, number, settings.run.seed, search.top_k])]
    if files.report.is_file():
        if _read(files.report).get("identity") not in known:
            raise ConfigError(
                f"{files.folder} was written with another index, system, writer, number of questions, seed, "
                "search.name or search.top_k. Restore these settings, delete the folder, or give another --run-dir."
            )
        return
    begun = perf_counter()
    written = _written(settings, number, console)
    if len(written.items) == 1:
        raise DataError(
            f"The documents of {settings.search.index} gave one question. A cold start needs two: one to learn, one to "
            "hold out. Add documents, or give your own questions (questions.path)."
        )
    about = {"identity": known[0], "counts": written.counts, "seconds": perf_counter() - begun}
    _save(files, written, about, proposes=proposes)


def write_questions(settings: TrainingSettings, out: Path, number: int, *, console: Console) -> None:
    """Write questions of a cold start to a new file. Raises EvoseekError."""
    if out.exists():
        raise ConfigError(f"{out} exists already. Give another file, or delete it.")
    items = _written(settings, number, console).items
    save_questions(out, [item.question for item in items])
    say(console, f"{len(items)} questions in {out}.")


def _written(settings: TrainingSettings, number: int, console: Console) -> Written:
    say(console, f"Writing {number} questions about the documents of {settings.search.index} ...")
    with Context(settings) as context:
        engine: Any = context.engine  # an index's engine is bound to no question
        writer: QuestionWriter = build("question_writer", _writer_settings(settings), context)
        top_k, seed = settings.search.top_k, settings.run.seed
        written = asyncio.run(checked_questions(writer, context.corpus, engine, number, k=top_k, seed=seed))
    console.print(counts_table(written.counts))
    for item in written.items[:_EXAMPLES]:
        say(console, f"  {item.question.text}  ->  {item.solved.turns[-1].answer}")
    if (made := len(written.items)) < number:
        few = " So few teach little. Add documents, or give your own questions." if made < _FEW else ""
        say(console, f"The documents gave {made} of {number} questions.{few}")
    return written


def _writer_settings(settings: TrainingSettings) -> QuestionWriterSettings:
    """Return the settings of the writer; for a system without a cold start (`evoseek propose --cold`), of the one that
    writes most."""
    return lookup(settings, "cold_start.writer") or QuestionWriterSettings(name="headings-en")


def _save(files: ColdStart, written: Written, about: Mapping[str, object], *, proposes: bool) -> None:
    """Save the files of a cold start. The report, with `about`, comes last: the files beside it are then complete."""
    trained, held_out = held_apart(written.items, max(1, round(HELD_OUT * len(written.items))))
    shown = list(islice(cycle(trained), min(DEMONSTRATIONS, TIMES * len(trained))))
    proposed = [item.proposed for item in shown if item.proposed] if proposes else []
    demonstrations = [*(item.solved for item in shown), *proposed[: len(shown) // 2]]
    files.folder.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(demonstration_row(one), ensure_ascii=False) + "\n" for one in demonstrations)
    write_atomic(files.demonstrations, "".join(lines))
    save_questions(files.questions, [item.question for item in trained])
    save_questions(files.held_out, [item.question for item in held_out])
    write_atomic(files.report, json.dumps(about, indent=2) + "\n")


def held_apart(items: Sequence[Item], number: int) -> tuple[list[Item], list[Item]]:
    """Split items into the trained ones and `number` held-out ones. Items that share a passage stay together if
    possible: questions about one statement reveal each other's answers.

    The items are in a random order. A group has the place of its member with the least text: by its first member, a
    large group would come early, and questions with much evidence would be held out more often.
    """
    of_passage: dict[str, int] = {}  # the first item with it
    pairs = [
        (place, of_passage.setdefault(passage, place))
        for place, item in enumerate(items)
        for passage in (*evidence_of(item.question), *cast("list[str]", item.question.metadata.get(STATED_IN, ())))
    ]
    rows, columns = zip(*pairs, strict=True) if pairs else ((), ())
    links = coo_array((np.ones(len(pairs), dtype=bool), (rows, columns)), shape=(len(items), len(items)))
    groups: list[int] = connected_components(links, directed=False)[1].tolist()
    sizes, room, chosen = Counter(groups), number, set[int]()
    turns: dict[int, int] = {}
    for place in sorted(range(len(items)), key=lambda place: items[place].question.text):
        turns.setdefault(groups[place], place)
    for one in sorted(turns, key=turns.__getitem__):
        if sizes[one] <= room:
            chosen.add(one)
            room -= sizes[one]
    held = [item for one, item in zip(groups, items, strict=True) if one in chosen]
    trained = [item for one, item in zip(groups, items, strict=True) if one not in chosen]
    return trained[room:], held + trained[:room]  # if groups are too large


def _read(report: Path) -> Mapping[str, object]:
    try:
        return dict(json.loads(report.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{report} is damaged ({error}). Delete its folder; the next run writes it again.") from error


def _warm(settings: TrainingSettings, files: ColdStart) -> dict[str, object]:
    """Return the settings of the run that learns, with the model, the search and the limits of the main run."""
    shared = {name: table for name, table in settings.resolved().items() if name in ("policy", "search", "tools")}
    return {
        **flatten(shared),
        **{f"rollout.{name}": max(lookup(settings, f"{role}.{name}") or 0 for role in _ROLES) for name in _LIMITS},
        "demonstrations.path": str(files.demonstrations),
        "evaluation.reviewed": settings.evaluation.reviewed,
        "learner.warmup_steps": _WARM_UP,
        "run.seed": settings.run.seed,
        "run.checkpoint_every": _CHECKPOINT_EVERY,
        "run.keep_checkpoints": 1,
    }


def counts_table(counts: Mapping[str, int]) -> Table:
    """Show the numbers of questions made and kept, by kind, and left out, by reason."""
    kinds = [name.partition("/")[2] for name in counts if name.startswith(("made/", "kept/"))]
    table = Table("kind", "made", "kept", title=f"Questions about {counts['documents']} documents")
    for kind in dict.fromkeys(kinds):
        made = counts.get(f"made/{kind}")
        table.add_row(kind, "" if made is None else str(made), str(counts.get(f"kept/{kind}", 0)))
    for reason in ("not found", "duplicate"):
        table.add_row(f"left out: {reason}", str(counts.get(reason, 0)), "")
    if copies := counts.get("copies"):
        table.add_row("copies of documents", str(copies), "")
    return table
