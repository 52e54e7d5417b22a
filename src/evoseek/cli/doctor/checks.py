"""The checks of `evoseek doctor`, and their diagnoses: installation, memory, files, and what would be trained."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from transformers import PreTrainedTokenizerBase

from evoseek import __version__
from evoseek.agent.answer import uses_chat_model
from evoseek.agent.prompt import rendered
from evoseek.assembly.inputs import questions_to_write, read_questions, training_sources
from evoseek.assembly.memory_needs import disk_needs, fit, step_rollouts
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import build
from evoseek.config.sections import is_given, lookup
from evoseek.errors import EvoseekError
from evoseek.eval.risk import SHARES, fewest
from evoseek.models.load import check_device, load_tokenizer
from evoseek.models.machine import cores, find_machine, oversubscription
from evoseek.models.policy import is_spelled
from evoseek.models.shape import is_here, read_config, shape_of
from evoseek.models.source import find_policy, is_gguf
from evoseek.renderers.chat_template import check_template
from evoseek.search.lexical import LexicalIndex, check_index
from evoseek.storage.files import expanded
from evoseek.storage.runs import RunDirectory
from evoseek.training.stages import check_asked, check_run

_PACKAGES = ("torch", "transformers", "safetensors", "tantivy", "pydantic")
_WEIGHTS = ("*.safetensors", "adapter_model.safetensors", "remote.json")
_AMONG, _WORDS = 5, 12  # passages to find, and words of the query, when an index is tried


@dataclass(frozen=True, slots=True)
class DoctorContext:
    """Settings, the run that they would make or resume (optional), the number of processes that would train, and the
    index that `evoseek index` builds for the project (None: there is no project)."""

    settings: TrainingSettings
    run: RunDirectory | None = None
    processes: int = 1
    project_index: Path | None = None

    @property
    def trains(self) -> bool:
        """Whether there is a policy to train, and not only a model behind [answerer]."""
        return not uses_chat_model(self.settings) or is_given(self.settings, "policy.model")

    @property
    def has_model(self) -> bool:
        """Whether the model's files are on this machine, so that reading them downloads nothing."""
        return is_here(self.settings.policy.model)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a check; warnings, and faults, which make a command fail, have a remedy."""

    about: str
    state: Literal["ok", "warning", "fault"]
    words: str
    remedy: str = ""


def fine(about: str, words: str) -> Diagnosis:
    """Return a diagnosis without a remedy."""
    return Diagnosis(about, "ok", words)


def warning(about: str, words: str, remedy: str) -> Diagnosis:
    """Return a diagnosis of what works, but may not be what the user expects."""
    return Diagnosis(about, "warning", words, remedy)


def fault(about: str, words: str, remedy: str) -> Diagnosis:
    """Return a diagnosis of what makes a command fail."""
    return Diagnosis(about, "fault", words, remedy)


def refused(about: str, error: Exception) -> Diagnosis:
    """Turn an error into a fault: its last sentence is the remedy, as in all errors of evoseek."""
    words, stop, remedy = " ".join(str(error).split()).rpartition(". ")
    return fault(about, f"{words}{stop.strip()}" if words else remedy, remedy if words else "Correct that.")


def tried(about: str, check: Callable[[], Diagnosis | str]) -> Diagnosis:
    """Run a check; an error becomes a fault. A text is a diagnosis without a remedy."""
    try:
        found = check()
    except EvoseekError as error:
        return refused(about, error)
    return fine(about, found) if isinstance(found, str) else found


def check_environment(context: DoctorContext) -> Iterator[Diagnosis]:
    """Report versions, and check the optional packages that no other check loads."""
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    yield fine("environment", f"evoseek {__version__}, Python {platform.python_version()}, {versions}")
    needed = {"peft": "lora"} if context.settings.adapter_rank else {}
    needed |= {tracker.name: "track" for tracker in context.settings.trackers if ":" not in tracker.name}
    for module, extra in needed.items():
        if find_spec(module) is None:
            words = f"The settings need the package {module}, which is not installed."
            yield fault("extras", words, f"pip install 'evoseek[{extra}]'")


def check_machine(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that the device exists, and that there are enough cores for the processes and their threads."""
    device, number = context.settings.policy.device, cores()

    def found() -> str:
        check_device(device)
        return f"{device}, {find_machine(device).free_bytes / 2**30:.1f} GiB free; {number} cores"

    yield tried("device", found)
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if words := oversubscription(context.processes, device):
        yield fault("cores", words, f"Give --processes {number} or fewer.")
    elif threads.isdecimal() and int(threads) * context.processes > number:
        words = f"{context.processes} x {threads} threads (OMP_NUM_THREADS) would share {number} cores."
        yield warning("threads", words, f"Set OMP_NUM_THREADS to {max(1, number // context.processes)}, or unset it.")


def check_memory(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that training fits the free memory."""
    found = fit(context.settings, context.processes)
    if found.state == "ok":
        yield fine("memory", found.words)
    else:
        yield (fault if found.state == "over" else warning)("memory", found.words, found.remedy)


def check_disk(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that the run's directory is writable and has room for the kept checkpoints and one more."""
    if context.run is None:
        return
    place = context.run.path.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        words = f"{context.run.path} cannot be written: {place} is not a folder that this user may write to."
        yield fault("disk", words, "Give another --run-dir, or make the folder writable.")
        return
    free, need = shutil.disk_usage(place).free, disk_needs(context.settings)
    needed = f"about {need / 1e9:.2g} GB needed for checkpoints and logs"
    words = f"{free / 1e9:.3g} GB free for {context.run.path}, {needed}"
    remedy = "Free space, set run.keep_checkpoints=1, or train an adapter."
    yield fault("disk", f"It does not fit: {words}.", remedy) if need > free else fine("disk", words)


def check_model(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check the model's files, its tokenizer and chat template, and the prompts."""
    name = context.settings.policy.model
    source = expanded(find_policy(name))
    if not context.has_model and (expanded(name).is_absolute() or name.startswith((".", "~"))):
        yield fault("model", f"There is no model at {name}.", "Correct policy.model.")
        return
    if not context.has_model:
        words = f"{name} is not on this machine. When it is needed, it is looked for on the Hugging Face hub."
        yield warning("model", words, "Correct policy.model, or download the model first.")
        return
    if source.is_dir() and not is_gguf(name) and not any(any(source.glob(pattern)) for pattern in _WEIGHTS):
        words = f"{source} holds no weights in safetensors, the only format that is read."
        yield fault("model", words, "Save the model with save_pretrained (safe_serialization), or download it again.")
    else:
        yield fine("model", f"{name}" + ("" if str(source) == name else f" ({source})"))
    yield from _tokenizer(context)


def _tokenizer(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that the tokenizer fits the model, the chat template and the prompts."""
    settings, shape = context.settings, shape_of(read_config(context.settings.policy.model))
    try:
        tokenizer = load_tokenizer(settings.policy.model)
    except EvoseekError as error:
        yield refused("tokenizer", error)
        return
    if shape is not None and len(tokenizer) > shape.vocabulary:
        words = f"The tokenizer has {len(tokenizer):,} tokens, but the model's vocabulary {shape.vocabulary:,}."
        yield fault("tokenizer", words, "Give a directory whose tokenizer and weights were saved together.")
    yield tried("chat template", lambda: _template(tokenizer, settings.policy.format))
    yield tried("prompt", lambda: _prompt(settings, "solver"))
    if lookup(settings, "proposer") is not None:
        yield tried("prompt", lambda: _prompt(settings, "proposer"))


def _template(tokenizer: PreTrainedTokenizerBase, format: Literal["auto", "tags", "tools"]) -> Diagnosis:
    report = check_template(tokenizer, format)
    if report.has_template and report.call_format is None and format == "auto":
        words = f"{report} The tag format is used instead."
        return warning("chat template", words, "Set policy.format=tags, or give a model with tool calls.")
    return fine("chat template", str(report))


def _prompt(settings: TrainingSettings, role: Literal["solver", "proposer"]) -> Diagnosis:
    """Compare the length of a role's example prompt with the longest rollout."""
    shown, longest = rendered(settings, role, ""), settings.rollout.max_total_tokens
    words = (
        f"{role}: {shown.tokens} of {longest} tokens, format {shown.format} (`evoseek ask TEXT --show-prompt {role}`)"
    )
    if shown.tokens >= longest:
        return fault("prompt", f"No room for an answer: {words}.", "Raise rollout.max_total_tokens.")
    return fine("prompt", words)


def check_indexes(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that the indexes are whole, of this version, and find a passage that they hold."""
    settings = context.settings
    named = {
        "search.index": settings.search.index if settings.searches_index else "-",
        "evaluation.index": settings.evaluation.index or "-",
    }
    for setting, directory in named.items():
        if directory == "-":
            continue
        place, own = Path(directory).absolute(), context.project_index
        if own is not None and place == own.absolute() and not place.exists():
            yield warning(setting, f"The project's index {directory} is not built yet.", "Run `evoseek index`.")
            continue
        yield tried(setting, partial(_searched, context, setting, directory))


def _searched(context: DoctorContext, setting: str, index: str) -> Diagnosis:
    """Check the checksums, and search for the words of the first passage. Raises SearchIndexError."""
    engine = context.settings.search.model_copy(update={"index": index})
    model, directory = context.settings.policy.model, Path(index)
    check_index(index, setting=setting, engine=engine)
    lexical = LexicalIndex.open(directory)
    first = next(lexical.passages(), None)
    if first is None:
        return fault(setting, f"{directory} holds no passage.", "Index documents that have text.")
    query = " ".join([first.title, *first.text.split()[:_WORDS]])
    found = asyncio.run(build("search", engine, None).search([query], _AMONG))[0]
    words = f"{directory}: {len(lexical):,} passages, checksums right"
    if first.id not in [passage.id for passage in found] and first.text not in [passage.text for passage in found]:
        words = f"{words}, but searching ({engine.name}) for the words of the passage {first.id} does not find it."
        return fault(setting, words, "Build it again with `evoseek index`.")
    is_tiny = context.trains and context.has_model and read_config(model).get("evoseek_prompts") == "tiny"
    if is_tiny and is_spelled(load_tokenizer(model), (passage.text for passage in lexical.passages())):
        words = f"{words}, but the tokenizer of {model} splits words into letters: it is for generated worlds only."
        return warning(setting, words, "Give a language model (policy.model), or expect no more than a trial.")
    return fine(setting, f"{words}, a known passage is found")


def check_sources(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check the files that the run reads."""
    settings = context.settings
    written = questions_to_write(settings)
    if written:
        yield fine("questions", f"at most {written} are written about the documents (a cold start), a tenth held out")
    for setting, read in training_sources(settings).items():
        yield tried(setting, read)
    if context.has_model:
        yield from _too_long(settings)
    if not settings.evaluation.path and not written:
        words = "No held-out questions: training is not evaluated."
        yield warning("evaluation.path", words, "Name labelled questions as evaluation.path, if there are any.")


def check_bound(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that there are enough questions to bound the share of wrong answers."""
    tests, share = context.settings.evaluation.path or context.settings.evaluation.reviewed, SHARES[0]
    with suppress(EvoseekError):  # a missing or unreadable file has been reported
        number, needed = len(read_questions(tests, setting="evaluation.path")), fewest(share)
        promised = f"to promise at most {share:.0%} wrong of what is shown takes {needed} shown answers, all right"
        words = f"{number} questions to evaluate on; {promised}"
        remedy = f"Collect more questions, or promise less: `evoseek eval --most-wrong {SHARES[1]:g}`."
        yield warning("bound", f"{words}.", remedy) if number < needed else fine("bound", words)


def _too_long(settings: TrainingSettings) -> Iterator[Diagnosis]:
    """Warn of a file whose longest question leaves the solver no room to write."""
    for setting in ("questions.path", "evaluation.path"):
        with suppress(EvoseekError):  # an unreadable file has been reported
            texts = (one.text for one in read_questions(lookup(settings, setting) or "", setting=setting))
            shown, most = rendered(settings, "solver", max(texts, key=len)), settings.rollout.max_total_tokens
            if shown.tokens >= most:
                words = f"The prompt of the longest question has {shown.tokens} tokens, and a rollout may have {most}."
                yield warning(setting, f"{words} Such questions are left out.", "Raise rollout.max_total_tokens.")


def check_directory(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that the run's directory belongs to a run, and that no other process uses it."""
    run = context.run
    if run is None:
        return

    def found() -> Diagnosis | str:
        run.check()
        if run.is_begun:
            run.read_config()
        if holder := run.holder():
            words = f"{run.path} is in use by the process {holder}."
            return fault("run", words, "Wait for it to end, stop it, or give another --run-dir.")
        return f"{run.path} is {'resumed' if run.is_begun else 'new'}"

    yield tried("run", found)


def check_plan(context: DoctorContext) -> Iterator[Diagnosis]:
    """Check that the settings go together, and report what would be trained."""
    settings = context.settings
    try:
        check_run(settings, context.run, context.processes)
        check_asked(settings, context.run)
    except EvoseekError as error:
        yield refused("settings", error)
    words = f"{settings.run.system}: {settings.trained} of {settings.policy.model}, {settings.planned_steps} steps"
    yield fine("plan", words + (f" of {each} rollouts" if (each := step_rollouts(settings)) else ""))
