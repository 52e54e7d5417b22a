"""The model card of an exported policy, model_card.md: its origin, training and scores."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from textwrap import indent
from typing import Any

from evoseek.eval.tables import held_out_score, interval_text
from evoseek.renderers.tags import OBSERVATION
from evoseek.storage.metrics import counted, read_metrics
from evoseek.storage.runs import RunDirectory, flatten
from evoseek.text.templates import sandbox

SHOWN = (
    *("policy.dtype", "lora.rank", "rollout.group_size", "rollout.temperature", "questions.per_step"),
    *("credit.name", "loss.name", "learner.learning_rate", "run.seed"),
)
"""Settings that the card names; the run's config.json has all."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class ExamplePrompt:
    """The prompt of a question as the policy gets it, in its format, the stop strings, and a turn's maximum tokens."""

    question: str
    text: str
    format: str
    stop_strings: tuple[str, ...]
    max_tokens: int


class _Code(str):
    """Text of an indented code block: nothing in it is Markdown."""


def model_card(
    source: str,
    step: int | None = None,
    *,
    adapter_of: str = "",
    results: Mapping[str, Any] | None = None,
    prompt: ExamplePrompt | None = None,
) -> str:
    """Write the card as Markdown, with metadata for the Hugging Face hub. `source` is the policy's name or directory,
    or its run with the checkpoint of `step`. An adapter is loaded over `adapter_of`. `results` come from `evoseek eval
    --out`; `prompt` shows how to use the policy without evoseek."""
    run = RunDirectory(Path(source)) if step is not None else None
    config: Mapping[str, Any] = {}
    if run is not None and run.config.is_file():
        config = flatten(json.loads(run.config.read_text(encoding="utf-8")))
    base = str(config.get("policy.model") or source)
    about = [("base model", base)]
    if run is not None:
        about += [("system", str(config.get("run.system"))), ("step", str(step))]
        about += [(f"{name} (SHA-256)", found.sha256) for name, found in run.read_inputs().items()]
    measured_by, scores = _of_results(results) if results is not None else _of_run(run, step or 0, config)
    return (
        sandbox(Path(__file__).parent, finalize=_plain)
        .get_template("model_card.md")
        .render(
            adapter_of=adapter_of,
            base=base,
            base_is_on_hub=bool(_HUB_NAME.fullmatch(base)) and not Path(base).exists(),  # the hub refuses other names
            origin=[*about, ("evoseek", version("evoseek"))],
            settings=[(name, config[name]) for name in SHOWN if config.get(name) is not None],
            prompt=prompt,
            prompt_code=_Code(indent(prompt.text, "    ", lambda line: True)) if prompt else "",
            stop_strings=_Code(json.dumps(prompt.stop_strings if prompt else ())),
            observation=_Code(json.dumps("PASSAGES".join(OBSERVATION))),
            source=measured_by,
            scores=scores,
        )
        + "\n"
    )


def _of_results(results: Mapping[str, Any]) -> tuple[str, list[tuple[str, str, int]]]:
    found = results["scores"].items()
    rows = [(name, interval_text(one["mean"], *one["interval_95"]), one["n"]) for name, one in found]
    return "By `evoseek eval`.", rows


def _of_run(run: RunDirectory | None, step: int, config: Mapping[str, Any]) -> tuple[str, list[tuple[str, str, int]]]:
    """Find the run's own last score up to the checkpoint's step."""
    rows = counted(read_metrics(run.metrics)) if run is not None else []
    measured = [row for row in rows if "eval/reward" in row and (row["step"] or 0) <= step]
    if not measured or measured[-1]["eval/reward"] is None:
        return "", []
    score, step = held_out_score(measured[-1]), int(measured[-1]["step"] or 0)
    right = score.mean * score.n
    is_share = score.n and abs(right - round(right)) < 1e-6 and 0 <= right <= score.n
    text = interval_text(score.mean, score.interval.low, score.interval.high) if is_share else f"{score.mean:.3f}"
    where = f"Measured by the run at step {step}, on its held-out questions. Questions that failed count as wrong."
    return where, [(str(config.get("reward.name")), text, score.n)]


def _plain(value: object) -> str:
    """Write a value from outside on one line, without cell ends, tags or links."""
    if isinstance(value, _Code):
        return value
    return re.sub(r"[|<]|(?<=])\(", r"\\\g<0>", " ".join(str(value).split()))
