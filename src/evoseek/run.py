"""A run: settings and objects in, training, evaluation and answers out. Only `train` imports what trains.

run = Run("search-r1", "runs/first", settings={"search.index": "index", "questions.path": "questions.jsonl"})
run.train()
print(run.evaluate("held_out.jsonl").score)
print(run.ask("Who wrote Dune?").answer)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from evoseek.agent.answer import Answered, Answerer, uses_chat_model
from evoseek.assembly.context import Context, Objects
from evoseek.assembly.inputs import read_questions
from evoseek.assembly.model_defaults import apply_model_defaults, follow_endpoint, search_first
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import SettingsSources, gather
from evoseek.config.sections import is_given, with_setting
from evoseek.errors import ConfigError
from evoseek.models.machine import find_machine
from evoseek.protocols import MetricSink, QuestionEngine, SearchEngine, Tool
from evoseek.storage.checkpoints import latest_checkpoint
from evoseek.storage.runs import RunDirectory
from evoseek.text.printable import say
from evoseek.types import Question
from evoseek.web.web import Web

if TYPE_CHECKING:
    from evoseek.credit import Credit
    from evoseek.eval.run import EvaluationResult
    from evoseek.eval.suite import Suite
    from evoseek.loss.base import LossFn, LossInputs


class Run:
    """A system with its settings and a run directory.

    system: a name, `package.module:Name`, or None for the system of the settings. directory: where the run is written,
    and from where it resumes; None only evaluates and asks. config: files and recipes, one or several. settings: values
    by dotted names, which win over `config`; or complete settings, which are taken as they are. `evoseek list system
    NAME` prints every setting. Without any of these, the run in `directory` gives the settings.

    The parts replace those that the settings name: `reward` and `loss` are functions, `search` is an engine, `credit`
    turns rewards into advantages. `tools` and `trackers` are added to the settings' own. `console` shows progress.

    Raises ConfigError for a setting or part that is wrong.
    """

    def __init__(
        self,
        system: str | None = None,
        directory: Path | str | RunDirectory | None = None,
        *,
        config: Path | str | Sequence[Path | str] = (),
        settings: Mapping[str, object] | TrainingSettings | None = None,
        search: SearchEngine | QuestionEngine | None = None,
        reward: Callable[..., Any] | None = None,
        loss: LossFn[LossInputs] | None = None,
        credit: Credit | None = None,
        web: Web | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        trackers: Sequence[MetricSink] = (),
        console: Console | None = None,
    ) -> None:
        self.directory = RunDirectory(Path(directory)) if isinstance(directory, Path | str) else directory
        self.console = console or Console()
        self.words, self.is_interrupted = "", False
        self._sources: SettingsSources | None = None  # if the settings are not complete
        if isinstance(settings, TrainingSettings):
            self._given = self.settings = settings
        else:
            self._sources = self._read(system, config, settings or {})
            self._given = self._sources.read()
            saved = self.directory.read_config() if self.directory and self.directory.is_begun else None
            self.settings, self.words = apply_model_defaults(self._given, find_machine, saved)
        self.objects = Objects(search, reward, loss, credit, web, tools, trackers)
        self.objects.check()

    def _read(
        self, system: str | None, config: Path | str | Sequence[Path | str], settings: Mapping[str, object]
    ) -> SettingsSources:
        files = [Path(file) for file in ([config] if isinstance(config, Path | str) else config)]
        options = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
        if not files and system is None and not options and self.directory and self.directory.config.is_file():
            files = [self.directory.config]
        return gather(files, system=system, options=options)

    def train(self) -> int:
        """Train to the last step, or resume, and return the last step made, from 1. Ctrl-C finishes the step and saves:
        `is_interrupted` is then true. Processes that torchrun started train one policy together.

        Raises ConfigError for settings that cannot be trained with, RunError for a directory that cannot be used, and
        TrainingError where too many rollouts fail.
        """
        from evoseek.training.train import train_together

        if self.words:
            say(self.console, self.words)
        if not self.cold_start():
            self.is_interrupted = True
            return 0
        ended = train_together(self.settings, self._writable, console=self.console, objects=self.objects)
        self.is_interrupted = ended.interrupted
        return ended.step

    def cold_start(self) -> bool:
        """Make the cold start of the settings, unless it is made, as `train` does first; the settings then name its
        policy and questions. False if Ctrl-C ended it early. Raises EvoseekError."""
        from evoseek.training.cold_start import cold_start

        made = cold_start(self.settings, self._writable, console=self.console, learn=self._learn_demonstrations)
        self.settings = made or self.settings
        return made is not None

    @property
    def _writable(self) -> RunDirectory:
        if self.directory is None:
            raise ConfigError("Training needs a directory for the run. Give one: Run(system, directory, ...).")
        return self.directory

    def _learn_demonstrations(self, directory: Path, settings: Mapping[str, object]) -> bool:
        """Fine-tune in a separate run, which chooses missing settings itself, and keeps them when it is resumed. False
        if Ctrl-C ended it early."""
        chosen = [key for key in ("policy.device", "policy.dtype") if not is_given(self._given, key)]
        own = {key: value for key, value in settings.items() if key not in chosen}
        warm = Run("sft", directory, settings=own, console=self.console)
        warm.train()
        return not warm.is_interrupted

    def evaluate(
        self,
        questions: str | Path | Sequence[Question] = "",
        *,
        samples: int = 1,
        temperature: float | None = None,
        search: bool = True,
        baseline: str | None = None,
        suite: Suite | None = None,
        kind: str = "",
        out: Path | None = None,
    ) -> EvaluationResult:
        """Score answers to questions, by default to the file `evaluation.path`: by the policy of the last checkpoint,
        by the model before training if there is none, or by the model of [answerer].

        samples: how often each question is answered. temperature: None takes the settings', 0 is greedy. search:
        False answers from the model's own knowledge. baseline: another way to answer, such as `rag`. suite, kind: what
        the questions are, for the title. out: a folder for all samples; what it has already is not drawn again.

        `score` of the result has the mean from 0 to 1 with its 95 % interval and n. Answers of a baseline or of
        [answerer] are scored as sentences if no reward was given. Raises EvoseekError, also if every rollout failed.
        """
        from evoseek.eval.run import EvaluationRequest, evaluate, with_metric_of_sentences

        if isinstance(questions, str | Path):
            path = str(questions or self.settings.evaluation.path)
            questions = read_questions(path, setting="evaluation.path")[: self.settings.evaluation.limit]
        if not questions:
            raise ConfigError("There are no questions to evaluate on. Give at least one.")
        if uses_chat_model(self.settings) and temperature not in (None, own := self.settings.answerer.temperature):
            raise ConfigError(
                f"temperature is {temperature:g}, but the model of [answerer] answers at its own, {own:g}. Set "
                "answerer.temperature."
            )
        with self.context() as context:
            if self._sources and self.objects.reward is None:
                context.settings = with_metric_of_sentences(context.settings, self._sources, baseline)
            if temperature is not None:
                context.settings = with_setting(context.settings, "evaluation.temperature", temperature)
            request = EvaluationRequest(questions, samples, search, suite, baseline, kind)
            return evaluate(context, request, out, console=self.console)

    def ask(self, question: str) -> Answered:
        """Answer one question, greedily, by the same model as `evaluate`, and check the answer against the passages
        found. `answer` of the result is None where the model gave none, or [support] refused it. The model is loaded
        each time: for many questions see examples/ask.py. Raises EvoseekError."""
        with self.context() as context:
            answerer = Answerer.of(context)
            for notice in answerer.notices(question):
                say(self.console, notice)
            return asyncio.run(answerer.answer(question, "ask"))

    def context(self) -> Context:
        """Return the objects that answer and score, with the policy of the last checkpoint, if any, or the model of
        [answerer], for a `with` block, whose end closes everything. Raises EvoseekError."""
        if uses_chat_model(self._given):
            return Context(self._search_first(follow_endpoint(self._given)), objects=self.objects)
        checkpoint = latest_checkpoint(self.directory.path) if self.directory else None
        settings = self.settings if checkpoint else self._search_first(self.settings)
        return Context(settings, checkpoint=checkpoint, objects=self.objects)

    def _search_first(self, settings: TrainingSettings) -> TrainingSettings:
        return search_first(settings, self._sources.states) if self._sources else settings
