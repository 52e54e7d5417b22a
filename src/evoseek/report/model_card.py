"""The model card of an exported policy: where it comes from, how it was trained, and what it scores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evoseek.report.evaluation import held_out_score, interval_text
from evoseek.report.metrics import read_metrics
from evoseek.runs import RunDirectory

SHOWN = (
    "policy.dtype",
    "lora.rank",
    "rollout.group_size",
    "rollout.temperature",
    "questions.per_step",
    "credit.name",
    "loss.name",
    "learner.learning_rate",
    "run.seed",
)
"""Settings that the card names; all of them are in the run's config.json."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an exported policy comes from: its name or directory, or a run at a step; and, of an adapter, the base that
    it has to be loaded over. `results` are those of `evoseek eval --out`."""

    source: str
    step: int | None = None
    adapter_of: str = ""
    results: Mapping[str, Any] | None = None


def model_card(origin: Origin) -> str:
    """The card as Markdown, with the metadata that the Hugging Face hub reads."""
    run = RunDirectory(Path(origin.source)) if origin.step is not None else None
    config = _json(run.config) if run else {}
    base = str(_at(config, "policy.model") or origin.source)
    settings = [(f"`{name}`", str(value)) for name in SHOWN if (value := _at(config, name)) is not None]
    adapter = (
        "This is the adapter alone, in the layout of peft, to be loaded over the base model "
        f"{_plain(origin.adapter_of)}."
    )
    parts = [
        _metadata(base, is_adapter=bool(origin.adapter_of)),
        "# A search agent trained with evoseek",
        "A language model that answers questions by searching a corpus. It writes calls of a search engine and reads "
        "what they return, so it needs one: `evoseek ask --model DIRECTORY --index INDEX QUESTION`.",
        *([adapter] if origin.adapter_of else []),
        _table(("", ""), _origin(origin, base, run, config)),
        *(["## Settings", _table(("setting", "value"), settings)] if config else []),
        *_scores(origin, run, config),
        "## Licence",
        f"The weights are derived from {_plain(base)}, and the licence of that model applies to them: see there before "
        "you pass them on. Texts of the corpus may be remembered in them.",
    ]
    return "\n\n".join(parts) + "\n"


def _metadata(base: str, *, is_adapter: bool) -> str:
    lines = ["---", f"library_name: {'peft' if is_adapter else 'transformers'}", "pipeline_tag: text-generation"]
    if _HUB_NAME.fullmatch(base) and not Path(base).exists():  # others the hub does not take
        lines.append(f"base_model: {base}")
    return "\n".join([*lines, "tags:", "- evoseek", "- search-agent", "- reinforcement-learning", "---"])


def _origin(
    origin: Origin, base: str, run: RunDirectory | None, config: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    yield "base model", base
    if run is not None:
        yield "system", str(_at(config, "run.system"))
        yield "step", str(origin.step)
        for name, found in run.read_inputs().items():
            yield f"{name} (SHA-256)", found.sha256
    yield "evoseek", version("evoseek")


def _scores(origin: Origin, run: RunDirectory | None, config: Mapping[str, Any]) -> list[str]:
    """The scores of an evaluation, else those that the run measured itself, at the last step up to the checkpoint's."""
    if origin.results is not None:
        source, scores = "By `evoseek eval`.", origin.results["scores"].items()
        rows = [(name, interval_text(one["mean"], *one["interval_95"]), str(one["n"])) for name, one in scores]
    elif run is not None and origin.step is not None:
        measured = [
            row for row in read_metrics(run.metrics) if "eval/reward" in row and (row["step"] or 0) <= origin.step
        ]
        if not measured or measured[-1]["eval/reward"] is None:
            return []
        score, step = held_out_score(measured[-1]), measured[-1]["step"]
        right = score.mean * score.n
        is_share = score.n and abs(right - round(right)) < 1e-6 and 0 <= right <= score.n
        low, high = score.interval.low, score.interval.high
        source = (
            f"Measured by the run at step {step:g}, on its held-out questions. Questions that failed count as wrong."
        )
        shown = interval_text(score.mean, low, high) if is_share else f"{score.mean:.3f}"
        rows = [(str(_at(config, "reward.name")), shown, str(score.n))]
    else:
        return []
    return ["## Scores", source, _table(("metric", "score [95 % interval]", "questions"), rows)]


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_plain(str(cell)) for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """A text from outside on one line, in which nothing is a cell's end, a tag or a link."""
    return re.sub(r"[|<]|(?<=])\(", r"\\\g<0>", " ".join(text.split()))


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _at(config: Mapping[str, Any], name: str) -> Any:
    """The value of a dotted setting; None if there is none."""
    value: Any = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
