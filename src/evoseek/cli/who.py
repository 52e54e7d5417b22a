"""Who answers: a run, a model, or a model behind an endpoint, as one argument of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evoseek.errors import ConfigError
from evoseek.files import expanded

Who = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN|MODEL|ENDPOINT",
        help="Who answers: a run (as --run-dir), a model (as --model), or NAME@URL of an OpenAI-compatible "
        "endpoint. Default: the project's run.",
    ),
]


def resolve_answerer(
    who: str | None, run_dir: Path | None, model: str | None
) -> tuple[Path | None, str | None, dict[str, object]]:
    """The run, the model and the settings of an endpoint that WHO names. Raises ConfigError if another one is named,
    too, or for an endpoint without a name."""
    if who is None:
        return run_dir, model, {}
    if run_dir is not None or model is not None:
        raise ConfigError(f"{who} and {'--run-dir' if run_dir else '--model'} both say who answers. Give one of them.")
    name, at, url = who.partition("@")
    if "://" in who:
        if not at or "://" in name or not name:
            raise ConfigError(f"{who} names no model at the endpoint. Expected NAME@URL, as in qwen@{url or who}.")
        return None, None, {"answerer.model": name, "answerer.base_url": url}
    if (expanded(who) / "config.json").is_file() and (expanded(who) / "checkpoints").is_dir():
        return expanded(who), None, {}
    return None, who, {}
