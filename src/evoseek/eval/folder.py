"""The directory of an evaluation, which can be resumed however the last process ended.

    settings.json   what was evaluated: another model, other settings or other questions are refused
    samples.jsonl   a line a finished sample, appended immediately (`eval.draw`)
    trajectories.jsonl   its rollout, as in a run (`rollout.record`), for `evoseek view`
    results.json    the scores, determined by the samples alone; results.md has them as tables
    timings.json    seconds
    lock            held by the process that writes here

The rollout is written first. A finished sample is never drawn again; missing and failed ones are. Each sample has its
own random numbers (policy.draw), so a resumed evaluation draws the same tokens as an uninterrupted one, if the
sampler's arithmetic does not depend on which rollouts share a batch: bit for bit with a scripted sampler or one in
lockstep. Elsewhere rounding may change a token, as between any two runs of a batched sampler.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from evoseek.errors import ConfigError, RunError
from evoseek.eval.draw import Key, Sample, identifier, merged
from evoseek.rollout.record import COMPACT
from evoseek.storage.files import write_atomic
from evoseek.storage.jsonl import ResumableJsonl, held, made_by
from evoseek.storage.runs import changes

JUDGED_WRONG = "judged_wrong"  # its evaluation of questions whose answer was judged wrong

_SAMPLE = TypeAdapter(Sample)


class EvaluationFolder:
    """The files of one evaluation. Nothing is created before `held`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings, self.results, self.timings = (
            path / f"{name}.json" for name in ("settings", "results", "timings")
        )
        self.markdown = path / "results.md"
        self.trajectories = path / "trajectories.jsonl"
        self._samples = ResumableJsonl(path / "samples.jsonl", json.JSONEncoder(ensure_ascii=False))

    @contextmanager
    def held(
        self,
        settings: Mapping[str, object],
        *,
        may_differ: Collection[str] = (),
        defaults: Mapping[str, object] | None = None,
    ) -> Generator[None]:
        """Hold the folder, created if missing, for an evaluation with these settings (values for JSON) during the
        block. `may_differ` and `defaults` are as in `evoseek.storage.runs.changes`.

        Raises ConfigError if it holds something else, or an evaluation with other settings; RunLockedError if another
        process is writing it; RunError if it cannot be written.
        """
        settings = json.loads(json.dumps(settings))
        self._refuse_foreign()
        with held(self.path, "lock"):
            if not self.settings.exists():
                write_atomic(self.settings, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")
            elif changed := changes(self.read_settings(), settings, may_differ, defaults):
                raise ConfigError(
                    f"The evaluation in {self.path} was begun with other settings: {changed}. Restore these to resume "
                    "it, or give another folder."
                )
            yield

    def append(self, sample: Sample) -> None:
        """Add a finished sample. Raises RunError if the disk refuses it."""
        self._samples.append([asdict(sample)])

    def samples(self) -> dict[Key, Sample]:
        """Return the samples so far, one a key, sorted. Raises DataError, naming the line, if one cannot be read."""
        return merged(self._samples.rows(made_by(_SAMPLE), "sample of an evaluation"))

    def resumed(self) -> dict[Key, Sample]:
        """Return the samples so far that have their rollouts. A row in only one of the two files, because a process or
        the machine stopped between them, is removed and drawn again. If no rollout was recorded, the samples stay.
        Raises as `samples`, and RunError if the disk refuses the change."""
        if self.trajectories.exists():
            rollouts = ResumableJsonl(self.trajectories, COMPACT)
            recorded = set(rollouts.rows(_id_if_valid, "rollout"))
            self._samples.keep(lambda row: bool(row["invalid"]) or _id(row) in recorded, "sample of an evaluation")
            valid = {identifier(*key) for key, sample in self.samples().items() if not sample.invalid}
            rollouts.keep(lambda row: _id_if_valid(row) in valid, "rollout")
        return self.samples()

    def flush(self) -> None:
        self._samples.position()

    def read_settings(self) -> dict[str, Any]:
        """Read what was evaluated. Raises RunError if the folder holds no evaluation or a damaged one."""
        return self._read(self.settings)

    def read_results(self) -> dict[str, Any]:
        """Read the results. Raises RunError if there are none yet."""
        return self._read(self.results)

    def declared(self) -> tuple[str, int]:
        """Read the metric of the results and their number of samples. Raises RunError as `read_results`."""
        found = self.read_results()
        metric, n, samples = (found.get(key) for key in ("metric", "n", "samples"))
        n = found.get("questions_asked", n)
        if not (isinstance(metric, str) and isinstance(n, int) and isinstance(samples, int)):
            raise RunError(
                f"{self.results} lacks its metric, n or samples. Restore it, or run its `evoseek eval --out` "
                "command again."
            )
        return metric, n * samples

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("expected a JSON object")
        except FileNotFoundError as error:
            raise RunError(
                f"{self.path} holds no finished evaluation: it has no {path.name}. Give a folder that `evoseek eval "
                "--out` wrote, and let it finish."
            ) from error
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read ({error}). Restore it, or evaluate into another folder.") from error
        return cast("dict[str, Any]", found)

    def _refuse_foreign(self) -> None:
        if self.settings.is_file():
            return
        if self.path.is_dir():
            ours = ("lock", JUDGED_WRONG)
            names = sorted(one.name for one in self.path.iterdir() if one.name not in ours and one.name[0] != ".")
        else:
            names = ["a file"] if self.path.exists() else []
        if names:
            raise ConfigError(
                f"{self.path} holds {names[0]} and no evaluation. Expected a folder that is new, empty or holds an "
                "evaluation. Give another one."
            )


def _id(sample: Any) -> str:
    return identifier(sample["question"], sample["number"])


def _id_if_valid(rollout: Any) -> str:
    """Return the id of a row of trajectories.jsonl; "" for a failed rollout."""
    return "" if "invalid" in rollout["outcome"] else str(rollout["id"])
