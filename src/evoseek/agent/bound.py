"""The bound on wrong answers: how certain an answer has to be to be shown. `evoseek eval --most-wrong` writes it to
`bound.json`, in a run's directory or beside `evoseek.toml`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, NonNegativeInt, TypeAdapter, with_config

from evoseek.errors import DataError
from evoseek.storage.files import read_regular, write_atomic

_Share = Annotated[float, Field(gt=0, lt=1)]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Bound:
    """With `confidence`, at most the share `most_wrong` of the shown answers is wrong if only answers are shown whose
    certainty is above `above` (None: every supported answer).

    It was set on `questions` questions: `shown` answers were above it, and `wrong` of these were wrong. `answerer` says
    which model gave them (`agent.answer.model_identity`).
    """

    most_wrong: _Share
    confidence: _Share
    above: Annotated[float, Field(ge=0, le=1)] | None
    shown: NonNegativeInt
    wrong: NonNegativeInt
    questions: NonNegativeInt
    answerer: str = ""

    @classmethod
    def read(cls, path: Path) -> Bound:
        """Read a file. Raises DataError."""
        try:
            return TypeAdapter(cls).validate_json(read_regular(path))
        except (OSError, ValueError) as error:
            raise DataError(
                f"The bound on wrong answers in {path} cannot be read. Write it again with `evoseek eval "
                "--most-wrong`, or remove the file to show every supported answer."
            ) from error

    def write(self, path: Path) -> None:
        write_atomic(path, json.dumps(asdict(self), indent=1) + "\n")

    def shows(self, certainty: float | None) -> bool:
        """Return whether an answer is certain enough; an unknown certainty is the lowest."""
        return self.above is None or (certainty or 0.0) > self.above

    def __str__(self) -> str:
        """Say what is promised."""
        are = "Every supported answer is" if self.above is None else f"Answers more certain than {self.above:.3f} are"
        promised = f"at most {self.most_wrong:.0%} of them are wrong, with {self.confidence:.0%} confidence"
        return f"{are} shown: {promised}, for questions like the {self.questions} on which it was set."
