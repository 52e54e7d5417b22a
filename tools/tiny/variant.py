"""A variant of the tiny policy: built, measured, and described in a README beside it."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from evoseek.errors import ConfigError
from evoseek.models.load import load_policy
from evoseek.storage.files import write_atomic
from evoseek.storage.runs import RunDirectory
from evoseek.text.printable import say
from evoseek.text.progress import STOPPING
from evoseek.training.interrupt import stop_on_interrupt
from tools.tiny.build import VARIANTS, WebRecipe, build, recipe_of
from tools.tiny.card import tiny_card
from tools.tiny.skills import measure_browsing, measure_skills


def build_variant(directory: Path, work: Path, *, variant: str, steps: int | None, seed: int, console: Console) -> bool:
    """Build the tiny policy, or resume a build, and write a README with its skills beside it.

    Returns False if Ctrl-C ended it early. Raises ConfigError for an unknown variant.
    """
    if variant not in VARIANTS:
        raise ConfigError(f"There is no variant {variant!r} of the tiny policy. There are: {', '.join(VARIANTS)}.")
    recipe = recipe_of(variant, seed=seed, steps=steps)
    measure = measure_browsing if isinstance(recipe, WebRecipe) else measure_skills

    def watch(step: int, loss: float) -> None:
        say(console, f"step {step}/{recipe.steps}  loss {loss:.4f}")

    with RunDirectory(work).locked(), stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted:
        finished = build(directory, work, recipe, progress=watch, should_stop=interrupted)
    if not finished:
        say(console, "Stopped. The same command resumes from there.")
        return False
    say(console, f"Written to {directory}. Measuring what it can do ...")
    command = f"python -m tools.tiny {directory} --variant {variant} --steps {recipe.steps} --seed {seed}"
    losses = [json.loads(line)["loss"] for line in (work / "losses.jsonl").read_text(encoding="utf-8").splitlines()]
    skills = measure(load_policy(str(directory)), seed=seed)
    card = tiny_card(recipe, losses, skills, command=command)
    write_atomic(directory / "README.md", card)
    say(console, card)
    return True
