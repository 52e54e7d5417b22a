"""The tuning of a simulated search engine, from settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import cast

from rich.console import Console

from evoseek.env.chats import LONGEST
from evoseek.env.prompts import load_prompts
from evoseek.env.simulator import SimulatorPrompts, write_card
from evoseek.files import check_new
from evoseek.learner.checkpoint import Checkpoint
from evoseek.learner.learner import Learner, LearnerContext
from evoseek.learner.logprobs import LogprobModel
from evoseek.loss.base import LossInputs
from evoseek.loss.likelihood import CrossEntropyLoss
from evoseek.policy.policy import Policy, prompts_of
from evoseek.registry import build
from evoseek.report.printable import say
from evoseek.report.progress import STOPPING, LiveProgress
from evoseek.runs import RunDirectory, with_digests
from evoseek.simulator.records import SearchRecord, load_records
from evoseek.simulator.tuning import ExampleMaker, TuningData, tune
from evoseek.systems.zerosearch import ZeroSearch
from evoseek.training.inputs import inputs_of
from evoseek.training.interrupt import stop_on_interrupt
from evoseek.training.supervised import SupervisedProgress, SupervisedRun
from evoseek.training.trainer import check_dtype, load_trainable


def begin_tuning(
    settings: ZeroSearch.Settings, records: Path, work: Path, *, steps: int, tokens_per_step: int
) -> SupervisedRun:
    """The policy of the settings while it is tuned to a simulator, resumed from the last checkpoint in `work` if there
    is one.

    Raises ConfigError, also if `work` was begun with other settings or records.
    """
    tables = with_digests(settings.resolved(), inputs_of(settings))
    recipe = {
        "records": sha256(records.read_bytes()).hexdigest(),
        "steps": steps,
        "tokens_per_step": tokens_per_step,
        "documents": settings.search.top_k,
        "max_words": settings.simulator.max_words,
        "prompts": cast("dict[str, object]", tables["simulator"])["prompts"],
        "seed": settings.run.seed,
        **{section: tables[section] for section in ("policy", "lora", "learner")},
    }

    def load(checkpoint: Checkpoint | None) -> Policy:
        policy = load_trainable(settings, checkpoint, device=settings.policy.device)
        check_dtype(settings, policy)
        return policy

    def learner(policy: Policy) -> Learner[LossInputs]:
        """Its learning rate falls to 0 at the last step."""
        context = LearnerContext(
            LogprobModel(policy.model), CrossEntropyLoss(), total_steps=steps, active=policy.active
        )
        return build("learner", settings.learner, context)

    return SupervisedRun.begin(work, json.dumps(recipe, indent=1, sort_keys=True), load, learner)


def tuning_data(settings: ZeroSearch.Settings, policy: Policy, records: Sequence[SearchRecord]) -> TuningData:
    """The records as examples for a policy: asked as it will be as a simulator, for replies of search.top_k documents.

    Raises ConfigError or DataError.
    """
    longest = getattr(policy.model.config.get_text_config(), "max_position_embeddings", LONGEST)
    maker = ExampleMaker(
        policy.tokenizer,
        SimulatorPrompts(load_prompts(prompts_of(policy, settings.policy.prompts))),
        documents=settings.search.top_k,
        max_words=settings.simulator.max_words,
        max_length=int(longest),
    )
    return TuningData.of(records, maker)


def tune_simulator(
    settings: ZeroSearch.Settings,
    source: Path,
    directory: Path,
    work: Path,
    *,
    steps: int,
    tokens_per_step: int,
    console: Console,
) -> bool:
    """Tune the settings' policy on labelled searches, or resume that, and write it as a plain model.

    Returns False if Ctrl-C ended it. Raises EvoseekError.
    """
    check_new(directory)
    records = load_records(source, notify=lambda text: say(console, text))
    with (
        RunDirectory(work).locked(),
        stop_on_interrupt(lambda: say(console, STOPPING)) as interrupted,
        LiveProgress(console, "step") as bar,
    ):
        run = begin_tuning(settings, source, work, steps=steps, tokens_per_step=tokens_per_step)
        data = tuning_data(settings, run.policy, records)
        for problem, count in data.left_out.items():
            say(console, f"Left out: {count} searches {problem}.")
        say(
            console, f"Tuning on {len(data.useful)} useful and {len(data.noisy)} noisy searches, after step {run.step}."
        )

        def watch(progress: SupervisedProgress) -> None:
            bar.show(progress.step, progress.steps, f"loss {progress.loss:.4f}")

        finished = tune(
            run,
            data,
            directory,
            seed=settings.run.seed,
            steps=steps,
            tokens_per_step=tokens_per_step,
            progress=watch,
            should_stop=interrupted,
        )
    if finished:
        write_card(directory, top_k=settings.search.top_k, max_words=settings.simulator.max_words)
    say(console, f"Written to {directory}." if finished else "Stopped. The same command resumes from there.")
    return finished
