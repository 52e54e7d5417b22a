"""Evaluations of a policy, or the model of [answerer], on questions: resumable, with several samples and all
metrics."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from evoseek.agent.answer import certainty_of, chat_roller, check_of, model_identity, uses_chat_model
from evoseek.assembly.agent import limits_of
from evoseek.assembly.context import Context
from evoseek.assembly.inputs import identity, inputs_of
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import SettingsSources
from evoseek.config.registry import build
from evoseek.config.sections import PartSettings, defaults_of, with_setting
from evoseek.errors import EvoseekError
from evoseek.eval.attempt import BaselineAnswerer, rollers_of
from evoseek.eval.draw import (
    AnswerFn,
    Drawn,
    Key,
    Sample,
    check_temperature,
    content_digest,
    draw,
    draw_missing,
    keys_of,
    merged,
)
from evoseek.eval.folder import EvaluationFolder
from evoseek.eval.results import MATCHES, OF_SENTENCES, Results, Score
from evoseek.eval.suite import Suite
from evoseek.eval.tables import grids, markdown, note, results_json
from evoseek.protocols import RewardFn
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.record import TrajectoryWriter
from evoseek.rollout.roller import ChatRoller
from evoseek.search.manifest import Manifest
from evoseek.storage.files import json_digest, write_atomic
from evoseek.storage.runs import with_digests
from evoseek.text.printable import say
from evoseek.text.progress import CountProgress
from evoseek.types import Question, TrajectoryGroup

_ONLY_IN_TRAINING = (
    *("rollout.group_size", "rollout.max_staleness"),
    *("reward.evidence_weight", "reward.overlong_max", "reward.unanswered_penalty", "reward.wrong_penalty"),
)
_DECIDING = (  # tables of settings that determine answers and scores
    *("policy", "lora", "search", "simulator", "rollout", "environment", "tools", "web", "browse", "reader"),
    *("reward", "judge", "answerer", "support"),
)
_INDEX: Mapping[str, object] = {"evaluation": {"index": ""}}  # its digest is recorded instead of its name


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """The questions to evaluate, the number of samples of each, and whether to search. `suite` is the questions' suite,
    or None. `baseline` is the model's way to answer (None: as an agent). `kind` describes the questions, for the
    title."""

    questions: Sequence[Question]
    samples: int = 1
    search: bool = True
    suite: Suite | None = None
    baseline: str | None = None
    kind: str = ""


@dataclass(frozen=True, slots=True)
class _EvaluatedModel:
    """The model that answers: a name, a way to answer, the temperature, and the searched engine, if any."""

    name: str
    answer: AnswerFn
    temperature: float
    engine: object = None


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """A finished evaluation: its results, also as JSON values, and the `model_identity` of the answerer."""

    results: Results
    json: dict[str, Any]
    answerer: str = ""

    @property
    def score(self) -> Score:
        """The score by the declared metric, over all questions."""
        return self.results.score(self.results.metric)

    @property
    def title(self) -> str:
        """The title of the tables."""
        about, temperature = self.json, self.json["temperature"]
        drawn = "greedy" if temperature == 0 else f"temperature {temperature:g}"
        suite: Any = about.get("suite")
        named = f"{suite['name']} {suite['split']}".rstrip() if suite else about.get("kind")
        on = f" on {named}" if named else ""
        by = f" by {about['baseline']}" if "baseline" in about else ""
        search = about.get("engine", "on") if about["search"] else "off"
        return f"{about['model']}{by}{on}: {self.results.metric}, {drawn}, search {search}"


def with_metric_of_sentences(
    settings: TrainingSettings, sources: SettingsSources, baseline: str | None
) -> TrainingSettings:
    """Score answers as sentences (`eval.results.OF_SENTENCES`) if no reward was given and the model was not trained to
    answer in few words: the model of [answerer], one that is searched first, or any model by a baseline."""
    is_of_sentences = baseline is not None or uses_chat_model(settings) or settings.environment.opens
    if sources.states("reward.name") or not is_of_sentences:
        return settings
    return with_setting(settings, "reward.name", OF_SENTENCES)


def _reward_of(context: Context, questions: Sequence[Question]) -> tuple[str, RewardFn]:
    """Return the reward that scores the answers, with its name: F1 instead of a match if all are of sentences."""
    lengths = [question.is_long for question in questions if question.is_answerable]
    if context.metric in MATCHES and lengths and all(lengths):
        return "f1", AnswerReward("f1")
    return context.metric, context.reward


def evaluate(context: Context, request: EvaluationRequest, out: Path | None, *, console: Console) -> EvaluationResult:
    """Draw every sample that the folder `out` lacks (None: nothing is written), with progress.

    Raises EvoseekError if no rollout was valid, ConfigError if `out` holds something else.
    """
    model = _model_of(context, request, console)
    check_temperature(request.samples, model.temperature)
    about = _about(context, request, model)
    folder = EvaluationFolder(out) if out is not None else None
    with _held(folder, context, request, about):
        samples = folder.resumed() if folder else {}
        _draw(context, request, model, samples, folder, console)
        results = Results(
            _reward_of(context, request.questions)[0],
            len(request.questions),
            request.samples,
            tuple(merged(samples.values()).values()),
        )
        _check_any_valid(results)
        evaluated = EvaluationResult(results, results_json(results, about), model_identity(context))
        if folder:
            _write(folder, evaluated)
    return evaluated


def _model_of(context: Context, request: EvaluationRequest, console: Console) -> _EvaluatedModel:
    settings = context.settings
    format: Literal["tags", "tools"] = "tags"
    engine = context.searched_held_out if request.search else None
    if uses_chat_model(settings):
        temperature = settings.answerer.temperature
        if request.baseline is None:
            asked = chat_roller(context, engine, request.search)
            return _EvaluatedModel(asked.chat.name, asked.one, temperature, engine)
        chat, prompts = context.chat("answerer")
        name, rollers = chat.name, partial(ChatRoller, chat)
    else:
        agent, temperature = context.agent, settings.held_out_temperature
        if notice := agent.template_notice():
            say(console, notice)
        name = agent.policy.name
        if request.baseline is None:
            roller = context.solver(engine) if request.search else agent.solver([])
            return _EvaluatedModel(name, roller.at(temperature).one, temperature, engine)
        prompts, rollers, format = agent.prompts, rollers_of(agent, temperature), agent.renderer([]).format
    if request.search and not settings.has_engine:
        engine = context.web.engine
    baseline = build("baseline", PartSettings(name=request.baseline), context)
    limits = limits_of(settings.rollout, prompts)
    answerer = BaselineAnswerer(baseline, rollers, format, prompts, limits, engine, settings.search)
    return _EvaluatedModel(name, answerer.answer, temperature, engine)


def _about(context: Context, request: EvaluationRequest, model: _EvaluatedModel) -> dict[str, object]:
    contents = {question.id: content_digest(question) for question in request.questions}
    return {
        "model": model.name,
        "search": request.search,
        **_engine(context.settings, request.search),
        "temperature": model.temperature,
        "seed": context.settings.run.seed,
        "questions": json_digest(contents),
        **({"suite": request.suite.about()} if request.suite else {}),
        **({"baseline": request.baseline} if request.baseline else {}),
        **({"kind": request.kind} if request.kind else {}),
    }


def _engine(settings: TrainingSettings, search: bool) -> dict[str, str]:
    if not (search and settings.examines_index and (index := settings.evaluation.index or settings.search.index)):
        return {}
    return {"engine": Manifest.read(Path(index)).engine_for(settings.search.name)}


def _held(
    folder: EvaluationFolder | None, context: Context, request: EvaluationRequest, about: Mapping[str, object]
) -> AbstractContextManager[object]:
    """Hold the folder for this evaluation. To resume it, all settings must be the same, except those only for
    training."""
    if folder is None:
        return nullcontext()
    settings, parts = context.settings, {"--baseline": request.baseline} if request.baseline else None
    tree, index = identity(settings, context.checkpoint, parts), with_digests(_INDEX, inputs_of(settings))
    deciding = {key: tree[key] for key in (*_DECIDING, "own", "checkpoint") if key in tree}
    follows = ("engine", "kind")  # derived from the index and its name, and from the questions
    about = {name: value for name, value in about.items() if name not in follows}
    known = {**deciding, **index, "samples": request.samples, "evaluated": about}
    return folder.held(known, may_differ=_ONLY_IN_TRAINING, defaults=defaults_of(settings).resolved())


def _draw(
    context: Context,
    request: EvaluationRequest,
    model: _EvaluatedModel,
    samples: dict[Key, Sample],
    folder: EvaluationFolder | None,
    console: Console,
) -> None:
    valid = {key for key, sample in samples.items() if sample.invalid is None}
    done = frozenset(valid)
    keys = keys_of(request.questions, request.samples)
    if done:
        say(console, f"{len(done)} of {len(keys)} samples are there; {len(keys) - len(done)} are drawn now.")

    metric, reward = _reward_of(context, request.questions)
    decode = str if uses_chat_model(context.settings) else context.agent.decode
    record = TrajectoryWriter(folder.trajectories if folder else None, decode)

    def keep(drawn: Drawn) -> None:
        sample, trajectory, outcome = drawn
        record.write(0, [TrajectoryGroup(f"evaluation/{sample.question}", (trajectory,), (outcome,))])
        if folder:
            folder.append(sample)
        samples[sample.key] = sample
        if sample.invalid is None:
            valid.add(sample.key)
        progress(len(valid), len(keys))

    draw_one = partial(
        draw,
        answer=model.answer,
        metric=metric,
        reward=reward,
        check=check_of(context, model.engine),
        certainty=partial(certainty_of, decode=decode, temperature=model.temperature),
    )
    with CountProgress(console, "samples") as progress:
        asyncio.run(draw_missing(request.questions, request.samples, done, draw=draw_one, keep=keep))
    if folder:
        folder.flush()


def _write(folder: EvaluationFolder, evaluated: EvaluationResult) -> None:
    results = evaluated.results
    made, said = grids(results, evaluated.title), note(results)
    seconds = {name: asdict(cost) for name, cost in results.costs(("seconds",)).items()}
    write_atomic(folder.timings, json.dumps(seconds, indent=1) + "\n")
    write_atomic(folder.markdown, markdown(made, said))
    write_atomic(folder.results, json.dumps(evaluated.json, indent=1, ensure_ascii=False) + "\n")


def _check_any_valid(results: Results) -> None:
    failed = Counter(sample.detail or str(sample.invalid) for sample in results.invalid)
    if failed.total() == len(results.samples):
        detail, count = failed.most_common(1)[0]
        raise EvoseekError(
            f"There is no score: all {failed.total()} rollouts were invalid. The most frequent reason ({count} "
            f"rollouts): {detail} Repair what failed, and run the same command again."
        )
