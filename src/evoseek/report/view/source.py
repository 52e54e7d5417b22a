"""A run directory, or the folder of an evaluation, for the viewer: all that exists so far, also during writing. A
damaged line is an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

from evoseek.config.registry import find
from evoseek.config.trust import check_code
from evoseek.credit import CreditSettings, is_relative
from evoseek.errors import ConfigError, PolicyError, RunError
from evoseek.eval.folder import EvaluationFolder
from evoseek.eval.results import Score
from evoseek.eval.statistics import Interval
from evoseek.eval.tables import held_out_score, metric_name, score_text
from evoseek.models.source import find_policy
from evoseek.report.view.rollouts import RecordedCredit, credit_of
from evoseek.storage.checkpoints import list_checkpoints
from evoseek.storage.files import nearest
from evoseek.storage.jsonl import ResumableJsonl
from evoseek.storage.metrics import ManyMetrics, MetricRow, counted, read_metrics
from evoseek.storage.runs import RunDirectory
from evoseek.training.alarms import AlarmedMetrics

T = TypeVar("T")
_REPLAYED = 2000  # last rows that are searched for warnings, which look at all rows before them


@dataclass
class RunSource:
    """A run or an evaluation to show. `notes` lists what could not be read so far."""

    directory: Path
    name: str
    notes: list[str] = field(default_factory=list[str])

    @classmethod
    def open(cls, directory: Path) -> RunSource:
        """Open the run or evaluation in a directory. Raises RunError if it is missing or unreadable."""
        if not directory.is_dir():
            found = f"{directory} is a file." if directory.exists() else f"There is no run {directory}."
            raise RunError(f"{found}{nearest(directory)} Give the directory of a run, with its trajectories.jsonl.")
        run = RunDirectory(directory)
        try:
            known = (run.config, run.metrics, run.trajectories, EvaluationFolder(directory).settings)
            is_run = any(path.exists() for path in known)
        except OSError as error:
            raise RunError(f"{directory} cannot be read ({error.strerror}). Give this user access to it.") from error
        if not is_run and (learning := directory / "cold_start" / "sft" / "config.json").is_file():
            own = cls.open(learning.parent)
            own.notes.append(
                f"This is the cold start of {directory}, which learns demonstrations. The questions that were written "
                f"are in {directory / 'cold_start' / 'questions.jsonl'}."
            )
            return replace(own, name=f"{directory.absolute().name}: cold start")
        if not is_run:
            raise RunError(
                f"{directory} holds no run: it has no config.json, metrics.jsonl or trajectories.jsonl. Give the "
                "directory of a run of `evoseek train` or `evoseek demo`, or of an evaluation of `evoseek eval --out`."
            )
        own, parent = directory.absolute().name, directory.absolute().parent.name
        return cls(directory, parent if own in ("run", "runs") and parent else own)  # the name in every project

    @property
    def run(self) -> RunDirectory:
        """The files of the run."""
        return RunDirectory(self.directory)

    @property
    def is_evaluation(self) -> bool:
        """Whether this is the folder of an evaluation."""
        return EvaluationFolder(self.directory).settings.is_file() and not self.run.config.exists()

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The resolved settings; empty, with a note, if missing or damaged."""
        try:
            evaluation = EvaluationFolder(self.directory)
            found: Any = evaluation.read_settings() if self.is_evaluation else self.run.read_config()
        except RunError as error:
            self.notes.append(str(error))
            return {}
        except OSError as error:
            self.notes.append(f"{self.run.config} cannot be read ({error.strerror or error}).")
            return {}
        return cast("Mapping[str, Any]", found if isinstance(found, dict) else {})

    @cached_property
    def system(self) -> str:
        """The name of the training system; "unknown" without settings, "evaluation" for an evaluation."""
        if self.is_evaluation:
            return "evaluation"
        table = self.config.get("run")
        return str(cast("dict[str, Any]", table).get("system", "unknown")) if isinstance(table, dict) else "unknown"

    @cached_property
    def model(self) -> str:
        """The name of the model; empty if unknown."""
        table: Any = self.config.get("evaluated") or self.config.get("policy")
        return str(table.get("model", "")) if isinstance(table, dict) else ""

    @cached_property
    def scores(self) -> list[tuple[str, str]]:
        """The scores of an evaluation by name; empty for a run, and, with a note, until the evaluation is finished."""
        if not self.is_evaluation:
            return []
        try:
            found = EvaluationFolder(self.directory).read_results()
            named = {metric_name(metric): score for metric, score in found["scores"].items()}
            for kind, scores in found.get("answers", {}).items():
                named |= {f"{kind} questions: {name.replace('_', ' ')}": score for name, score in scores.items()}
            return [(name, score_text(_score(score))) for name, score in named.items()]
        except (RunError, LookupError, TypeError, ValueError, AttributeError) as error:
            self.notes.append(str(error) if isinstance(error, RunError) else f"results.json is damaged ({error!r}).")
            return []

    @cached_property
    def rows(self) -> list[MetricRow]:
        """The rows of metrics.jsonl. Raises DataError."""
        return list(read_metrics(self.run.metrics))

    @cached_property
    def counted(self) -> list[MetricRow]:
        """The rows that count for the policy's performance."""
        return counted(self.rows)

    @cached_property
    def headline(self) -> str:
        """The held-out score of the first and the last evaluation, with 95 % intervals (Wilson's: exact for right and
        wrong answers, an upper bound of the width for graded ones); empty with fewer than two evaluations."""
        found = [row for row in self.counted if None not in (row.get("eval/reward"), row.get("eval/n"))]
        if len(found) < 2 or any(not 0 <= (row["eval/reward"] or 0) <= 1 for row in found):
            return ""
        first, last = (score_text(held_out_score(row)) for row in (found[0], found[-1]))
        steps = f"steps {found[0]['step']:.0f} and {found[-1]['step']:.0f}"
        return f"Held-out score {first} → {last}, {steps}"

    @cached_property
    def warnings(self) -> list[tuple[int, str]]:
        """The warnings of training for these metrics, in order, with the steps at which they began."""
        found: list[tuple[int, str]] = []
        last = self.counted[-_REPLAYED:]
        step = 0

        def notify(text: str) -> None:
            found.append((step, text))

        earlier = self.counted[: len(self.counted) - len(last)]
        sink = AlarmedMetrics(ManyMetrics(), notify, earlier=earlier, relative=self._is_relative)
        for row in last:
            step = int(row["step"] or 0)
            sink.write(step, {name: value for name, value in row.items() if value is not None and name != "step"})
        return found

    @property
    def _is_relative(self) -> bool:
        """Whether equal rewards in a group give no signal with the credit of the settings, or else the default. False
        if its code may not be imported."""
        table: Any = self.config.get("credit") or {}
        try:
            check_code(table, self.run.config)
            return is_relative(find("credit", str(table.get("name", CreditSettings().name))))
        except (ConfigError, AttributeError):
            return False

    @cached_property
    def credits(self) -> dict[str, RecordedCredit]:
        """The learner's input by trajectory; empty if not recorded. Raises DataError."""
        if self.is_evaluation:  # its samples.jsonl has another meaning
            return {}
        return dict(ResumableJsonl(self.run.samples).rows(credit_of, "rollout's advantages"))

    def rollouts(self, make: Callable[[Any], T]) -> Iterator[T]:
        """Yield what `make` makes of each rollout's line, in the order of recording. Raises DataError."""
        return ResumableJsonl(self.run.trajectories).rows(make, "rollout")

    @property
    def is_running(self) -> bool:
        """Whether a process holds the run's lock."""
        return self.run.holder() is not None

    def tokenizer_file(self) -> Path | None:
        """Find the policy's tokenizer: the last checkpoint's, or that in the model that the run began with."""
        saved = [path / "policy" / "tokenizer.json" for _, path in list_checkpoints(self.directory)]
        begun: list[Path] = []
        try:
            inputs = json.loads(self.run.inputs.read_text(encoding="utf-8"))["inputs"]
            begun = [Path(inputs["policy.model"]["path"]) / "tokenizer.json"]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            pass
        with suppress(PolicyError, OSError):
            begun.append(Path(find_policy(self.model)) / "tokenizer.json")
        return next((path for path in (*saved, *begun) if path.is_file()), None)


def _score(found: Any) -> Score:
    return Score(float(found["mean"]), Interval(*map(float, found["interval_95"])), found["n"], found["n_invalid"])
