"""`evoseek export`: a trained policy as a plain model directory, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from evoseek.cli.options import command, stop_if_dry
from evoseek.errors import ConfigError, EvoseekError, PolicyError, RunError, disk_text
from evoseek.models.source import ADAPTER, check_policy, find_policy
from evoseek.storage.files import check_new, expanded, write_atomic
from evoseek.storage.runs import RunDirectory
from evoseek.text.printable import say
from evoseek.training.interrupt import end_on_interrupt

if TYPE_CHECKING:
    from evoseek.models.policy import Policy
    from evoseek.report.model_card import ExamplePrompt
    from evoseek.storage.checkpoints import Checkpoint
    from evoseek.types import StopConditions


_EXAMPLE = "Who is the mayor of Kalo?"


@command("export")
def export(
    source: Annotated[str, typer.Argument(help="A run, whose last checkpoint is used, or a policy: see --model.")],
    directory: Annotated[Path, typer.Argument(help="Directory for the plain model.")],
    adapter: Annotated[bool, typer.Option("--adapter", help="Write the adapter alone, in the layout of peft.")] = False,
    evaluation: Annotated[
        Path | None, typer.Option(help="Folder of `evoseek eval --out`, whose scores the model card shows.")
    ] = None,
) -> None:
    """Write a policy as a plain model directory, in float32, with a model card. Merge an adapter into its base."""
    from evoseek.eval.folder import EvaluationFolder

    _check(source, directory, adapter=adapter)
    check_policy(source, setting="The run or policy")
    results = EvaluationFolder(evaluation).read_results() if evaluation else None
    what = "the adapter of {} alone" if adapter else "the policy of {} as a plain model"
    stop_if_dry([f"Write {what.format(source)} to {directory}"])
    with end_on_interrupt():
        from evoseek.models.load import export_policy, load_policy, save_policy
        from evoseek.report.model_card import model_card
        from evoseek.storage.checkpoints import from_lasting, latest_checkpoint

    def load(checkpoint: Checkpoint | None) -> tuple[Checkpoint | None, Policy]:
        return checkpoint, load_policy(str(checkpoint.part_directory("policy")) if checkpoint else source)

    try:
        checkpoint, policy = from_lasting(latest_checkpoint(Path(source)), load)
    except PolicyError as error:
        if source == "tiny" or expanded(source).exists():
            raise
        raise PolicyError(
            f"There is neither a run nor a directory {source}; check the path. Taken as a policy's name: {error}"
        ) from error
    if adapter and policy.adapter is None:
        raise _without_adapter(source)
    adapter_of = policy.model.name_or_path or "" if adapter else ""
    step = checkpoint.step if checkpoint else None
    prompt, stop = _prompt(source, checkpoint)
    card = model_card(source, step, adapter_of=adapter_of, results=results, prompt=prompt)
    try:
        if adapter:
            save_policy(policy, directory)
        else:
            export_policy(policy, directory, stop)
        write_atomic(directory / "README.md", card)
    except OSError as error:
        raise ConfigError(disk_text(error, f"{directory} cannot be written")) from error
    whence = f"step {checkpoint.step} of {source}" if checkpoint else source
    what = "its adapter merged into the base" if policy.adapter else "as it is"
    what = "its adapter alone" if adapter else what
    say(Console(), f"Wrote the policy of {whence} to {directory}, {what}.")


def _prompt(source: str, checkpoint: Checkpoint | None) -> tuple[ExamplePrompt | None, StopConditions | None]:
    """Return an example of the prompts that the policy was trained on or would get, and where its turns end; nothing,
    with a note, if a part that writes them is missing."""
    from evoseek.agent.prompt import rendered
    from evoseek.assembly.sources import gather
    from evoseek.report.model_card import ExamplePrompt

    try:
        settings = gather(RunDirectory(Path(source)).config if checkpoint else ()).read()
        own = {"model": str(checkpoint.part_directory("policy")) if checkpoint else source}
        settings = settings.model_copy(update={"policy": settings.policy.model_copy(update=own)})
        shown = rendered(settings, "solver", _EXAMPLE)
    except EvoseekError as error:
        say(Console(stderr=True), f"The model card has no prompt, and the model no stop strings: {error}")
        return None, None
    longest = settings.rollout.max_tokens_per_turn
    return ExamplePrompt(_EXAMPLE, shown.text, shown.format, shown.stop.strings, longest), shown.stop


def _check(run_or_policy: str, directory: Path, *, adapter: bool) -> None:
    """Check an export without loading a model: the directory, the run's checkpoint and a local policy's adapter. Raises
    ConfigError or RunError."""
    check_new(directory)
    run = RunDirectory(expanded(run_or_policy))
    if (run.path / "lock").is_file() and not run.saved_steps:
        raise RunError(
            f"{run_or_policy} has saved no checkpoint yet, so there is nothing to export. Resume the run until its "
            "first checkpoint (every run.checkpoint_every steps)."
        )
    policy = expanded(find_policy(run_or_policy))
    if adapter and policy.exists() and not (policy / ADAPTER).is_file():
        raise _without_adapter(run_or_policy)


def _without_adapter(run_or_policy: str) -> ConfigError:
    return ConfigError(
        f"{run_or_policy} has no adapter: all of its weights were trained. Leave out --adapter to export all "
        "weights; to train an adapter, set lora.rank above 0."
    )
