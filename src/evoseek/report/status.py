"""The progress of a run, only from its files: nothing is loaded, locked for long, or written."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from rich.filesize import decimal

from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import read_saved
from evoseek.config.registry import find
from evoseek.config.sections import lookup
from evoseek.config.trust import foreign_code, is_import_path
from evoseek.credit import is_relative
from evoseek.errors import RunError
from evoseek.eval.tables import held_out_score, score_text
from evoseek.reward.functions import lowest_of
from evoseek.storage.files import nearest
from evoseek.storage.metrics import MetricRow, counted, read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.training.alarms import alarms

_ROLES = ("solver", "proposer")
_SHOWN = {  # metrics of a role, in this order
    "reward": "reward",
    "frac_reward_zero_std": "groups without a signal",
    "tools/call_frequency": "searches",
    "completions/mean_length": "tokens",
    "rollout/invalid_frac": "invalid",
    "kl": "KL",
    "eval/loss": "held-out loss",
    "loss": "loss",
}
_SHARES = ("frac_reward_zero_std", "rollout/invalid_frac")

Line = tuple[str, str]
"""A line's subject and text."""


def status(folder: Path) -> list[Line]:
    """Return the lines on a run's progress. Raises RunError for a folder that is not a run, and as reading its
    files."""
    if (folder / "config.json").is_file() and ((folder / "lock").is_file() or (folder / "checkpoints").is_dir()):
        return RunStatus.read(RunDirectory(folder)).lines()
    if (folder / "lock").is_file():
        return list(_cold_start(RunDirectory(folder)))
    raise RunError(
        f"{folder} is not a run.{nearest(folder)} Give the directory of a run of `evoseek train`. (Scores of an "
        "evaluation are in its results.md.)"
    )


def is_writing_questions(folder: Path) -> bool:
    """Return whether a run has nothing to show yet, because its cold start has not begun to learn."""
    return not any((folder / place / "config.json").is_file() for place in (".", "cold_start/sft"))


def _cold_start(run: RunDirectory) -> Iterator[Line]:
    learning, holder = run.path / "cold_start" / "sft", run.holder()
    is_learning = (learning / "config.json").is_file()
    state = f"running (process {holder})" if holder else "stopped"
    doing = "learning the demonstrations" if is_learning else "writing questions"
    if is_learning:
        learnt = RunStatus.read(RunDirectory(learning))
        left = learnt.seconds_left
        known = "" if left is None or not learnt.rows else f" of {learnt.planned}, about {_time(left)} left"
        doing += f", step {learnt.step}{known}"
    yield "Run", f"{run.path}: {state}; cold start: {doing}"
    if not holder:
        yield "Next", "the command that began it resumes it"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The state of a run by its files. `rows` and `timings` belong to its steps; `holder` is the process that
    trains."""

    run: RunDirectory
    settings: TrainingSettings
    rows: Sequence[MetricRow]
    timings: Sequence[MetricRow]
    holder: str | None
    checkpoints: tuple[int, ...]

    @staticmethod
    def read(run: RunDirectory) -> RunStatus:
        """Read the files of a run. Raises EvoseekError for damaged ones."""
        settings, rows = read_saved(run), read_metrics(run.metrics)
        return RunStatus(run, settings, rows, read_metrics(run.timings), run.holder(), run.saved_steps)

    @property
    def counted(self) -> list[MetricRow]:
        """The rows that count for the policy's performance."""
        return counted(self.rows)

    @property
    def step(self) -> int:
        """The last step known to be made."""
        return int(max((*(row["step"] or 0 for row in self.rows), *self.checkpoints), default=0))

    @property
    def is_finished(self) -> bool:
        """Whether the last planned step is made and saved."""
        return self.step >= self.planned and self.step in self.checkpoints

    @property
    def planned(self) -> int:
        """The last planned step. For demonstrations it follows from the number learnt in a step."""
        learnt = self.rows[-1].get("demonstrations/epoch") if self.rows else None
        if not learnt:
            return self.settings.planned_steps
        whole = lookup(self.settings, "demonstrations.epochs") * (self.rows[-1]["step"] or 0) / learnt
        return min(self.settings.planned_steps, math.ceil(round(whole, 6)))

    @property
    def seconds(self) -> float:
        """Seconds of all steps."""
        return sum(row.get("step/seconds") or 0.0 for row in self.timings)

    @property
    def seconds_left(self) -> float | None:
        """Seconds for the other steps at the mean so far, within run.max_minutes; None before the first step."""
        if not self.timings:
            return None
        left = self.seconds / len(self.timings) * max(0, self.planned - self.step)
        limit = self.settings.run.max_minutes
        return left if limit is None else min(left, max(0.0, 60 * limit - self.seconds))

    def lines(self) -> list[Line]:
        """Return the lines of one screen."""
        own = self.settings
        return [
            ("Run", f"{self.run.path}: {self._state()}"),
            ("System", f"{own.run.system}, model {own.policy.model}, seed {own.run.seed}"),
            ("Step", self._step()),
            ("Checkpoint", self._checkpoint()),
            *self._held_out(),
            *self._roles(),
            ("Time", self._time()),
            ("Disk", decimal(_size(self.run.path))),
            *(("Warning", words) for words in self.warnings()),
            *(("Next", command) for command in self._next()),
        ]

    def warnings(self) -> list[str]:
        """Return the alarms of the metrics so far, and a note if a batch with non-finite numbers was kept."""
        credit = self._part("credit")
        is_known = not is_import_path(credit) or not foreign_code(self.run.read_config(), self.run.config)
        relative = is_known and is_relative(find("credit", credit))
        found = alarms(self.counted, relative=relative, trajectories=self.run.trajectories)
        dump = f"{self.run.dump} holds a batch with losses or gradients that were not finite."
        return [*found.values(), *([dump] if self.run.dump.is_file() else [])]

    def _state(self) -> str:
        if self.holder is not None:
            return f"running (process {self.holder})"
        if self.is_finished:
            return "finished"
        where = "" if self.checkpoints else " before its first checkpoint"
        try:
            reason = self.run.stopped.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            reason = "no reason was recorded: the process was killed, or the machine ended"
        return f"stopped{where}: {' '.join(reason.split())}"

    def _step(self) -> str:
        if reason := self._unknown():
            return f"unknown, {self.step} or more of {self.planned}: {reason}"
        return f"{self.step} of {self.planned}"

    def _unknown(self) -> str | None:
        """Return why the steps are unknown; None if their rows can be read, or do not exist yet."""
        if not self.run.metrics.exists():
            return f"{self.run.metrics} is missing" if self.checkpoints else None
        if not self.rows and self.run.metrics.stat().st_size:
            return f"{self.run.metrics} holds no row that can be read. Restore it from a copy"
        return None

    def _checkpoint(self) -> str:
        if not self.checkpoints:
            return f"none yet (every {self.settings.run.checkpoint_every} steps)"
        lost = self.step - self.checkpoints[-1]
        return f"step {self.checkpoints[-1]}" + (f"; {lost} steps since then are made again" if lost > 0 else "")

    def _held_out(self) -> Iterator[Line]:
        scored = [row for row in self.counted if row.get("eval/reward") is not None]
        if not scored:
            yield "Held-out", "not measured (evaluation.path)"
            return
        first, last = self._score(scored[0]), self._score(scored[-1])
        metric = self._part("reward").rpartition(":")[2]
        yield "Held-out", f"{metric} {last}" + (f"; at the beginning {first}" if len(scored) > 1 else "")

    def _score(self, row: MetricRow) -> str:
        score = held_out_score(row)
        has_interval = score.n and 0 <= score.mean <= 1 and self._is_share
        return f"{score_text(score) if has_interval else f'{score.mean:.3f}'} at step {row['step']:.0f}"

    def _part(self, kind: Literal["reward", "credit"]) -> str:
        """Name a part, which may be code that must not be imported here."""
        table = cast("Mapping[str, object]", self.run.read_config().get(kind) or {})
        return str(table.get("name", lookup(self.settings, f"{kind}.name")))

    @property
    def _is_share(self) -> bool:
        """Whether the reward is known to be at least 0."""
        return not is_import_path(self._part("reward")) and lowest_of(find("reward", self._part("reward"))) == 0

    def _roles(self) -> Iterator[Line]:
        rows = self.counted[::-1]
        for role in (*_ROLES, ""):
            prefix = f"{role}/" if role else ""
            named = [f"{prefix}reward"] if role else ["reward", "loss"]
            row = next((row for name in named for row in rows if row.get(name) is not None), None)
            if row is not None:
                own = {name: row[prefix + name] for name in _SHOWN if prefix + name in row}
                text = ", ".join(_number(name, value) for name, value in own.items())
                yield (role or "policy").capitalize(), f"{text} (step {row['step']:.0f})"

    def _time(self) -> str:
        if not self.timings and self.step:
            return f"unknown: {self.run.timings} is missing, or holds no row that can be read"
        used, left = f"{_time(self.seconds)} of steps", self.seconds_left
        if left is None or self.is_finished:
            return used
        whether = "left" if self.holder is not None else "more if it is resumed"
        return f"{used}; about {_time(left)} {whether}, at the mean of the steps so far, without evaluations"

    def _next(self) -> Iterator[str]:
        where = shlex.quote(str(self.run.path))
        if foreign := foreign_code(self.run.read_config(), self.run.config):
            yield (
                f"its config names code, servers or keys ({', '.join(foreign)}): name them in your own settings, as in "
                f"`evoseek train --run-dir {where} --config FILE`, or set EVOSEEK_TRUST={where} if you trust all of it"
            )
            return
        if self.holder is None and not self.is_finished:
            yield f"evoseek train --run-dir {where}"
        if self.checkpoints:
            yield f"evoseek eval --run-dir {where}"
            yield f'evoseek ask --run-dir {where} "..."'


def _number(name: str, value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return f"{_SHOWN[name]} not finite"
    return f"{_SHOWN[name]} {value:{'.0%' if name in _SHARES else '.3g'}}"


def _size(folder: Path) -> int:
    """Count the bytes of a folder's files; some may vanish meanwhile if a run trains."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(Path(parent, name)).st_size
    return total


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
