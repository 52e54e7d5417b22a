"""A generated world as the judge of questions: `world.json` beside an index says which world the index holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from evoseek.errors import DataError
from evoseek.files import write_atomic
from evoseek.world.world import Split, World


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth about a question that can be answered: the right answer, and the number of facts that it really rests
    on."""

    answer: str
    hops: int


Oracle = Callable[[str], Truth | None]
"""The truth about a question text; None if it has no answer, or more than one."""


class _Card(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    seed: int
    entities: int
    split: Split
    style: Literal["plain"]


def world_oracle(world: World) -> Oracle:
    """The oracle of a world, for questions in its grammar (`World.oracle`)."""

    def judge(text: str) -> Truth | None:
        verdict = world.oracle(text)
        if not verdict.answerable or verdict.answer is None or verdict.hops is None:
            return None
        return Truth(verdict.answer, verdict.hops)

    return judge


def save_world_card(path: Path, world: World) -> None:
    """Write what `load_world` needs to make this world again. Raises RunError if that cannot be written."""
    card = _Card(seed=world.seed, entities=len(world), split=world.split, style="plain")
    write_atomic(path, card.model_dump_json(indent=1) + "\n")


def load_world(path: Path) -> World:
    """Generate the world of a card. Raises DataError if the file is no card, or the card of no world."""
    try:
        card = _Card.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path} is not the card of a generated world: {_first_problem(error)}. Expected a world.json such as "
            '{"seed": 0, "entities": 1000, "split": "train", "style": "plain"}, as it lies beside the index of a '
            "generated world. Leave the world out if the corpus is a real one."
        ) from error
    return World.generate(card.seed, card.entities, card.split)


def _first_problem(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    problem = error.errors()[0]
    return f"{'.'.join(str(part) for part in problem['loc']) or 'the whole'}: {problem['msg']}"
