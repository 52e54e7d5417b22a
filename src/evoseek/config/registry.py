"""The registry of parts that can be chosen by name: the kinds of parts, and the class or function behind each name.

A part that comes with evoseek has one line here. `package.module:Name` is accepted in place of any name, so your own
parts need no line. Nothing is imported before it is needed.
"""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evoseek.config.trust import check_owner, is_import_path
from evoseek.errors import ConfigError, EvoseekError, did_you_mean

_BUILD, _BIND = "build(settings, context)", "for_question(question, trajectory_id)"
_beside: set[str] = set()  # working folders that were added to where modules are found


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of part: what it is, the built-in ones by name, and what a part of this kind must have.

    `needs` are methods as they are called, attributes, and (capitalised) attributes of the class itself. If the only
    one is `__call__`, a function is enough; for any kind, a class whose `build` makes the part is. `or_needs` replaces
    them for a part that is bound to a question first. `settings` are the settings of parts that import torch, readable
    without torch. `packaged` are parts in separate distributions, which need not be installed. `optional` are methods
    and attributes that a part may have, each with its effect. `of_function` makes a part from a function.
    """

    what: str
    parts: Mapping[str, str]
    needs: tuple[str, ...]
    or_needs: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    packaged: Mapping[str, str] = field(default_factory=dict[str, str])
    optional: Mapping[str, str] = field(default_factory=dict[str, str])
    of_function: str = ""


_ANSWER = "evoseek.reward.functions:AnswerReward"

KINDS: Mapping[str, Kind] = {
    "system": Kind(
        "a training algorithm, one step at a time",
        {
            "search-r1": "evoseek.systems.search_r1:SearchR1",
            "dspo": "evoseek.systems.dspo:DSPO",
            "zerosearch": "evoseek.systems.zerosearch.system:ZeroSearch",
            "deepresearcher": "evoseek.systems.deepresearcher:DeepResearcher",
            "dr-zero": "evoseek.systems.dr_zero:DrZero",
            "ssp": "evoseek.systems.ssp:SSP",
            "sft": "evoseek.systems.sft:SFT",
        },
        (_BUILD, "async step(step)", "Settings"),
    ),
    "agent": Kind(
        "who calls the policy: the package's own turn loop, or any program",
        {
            "loop": "evoseek.rollout.gateway.agents:OwnLoop",
            "command": "evoseek.rollout.gateway.agents:Command",
        },
        ("__call__(task, client)",),
        settings={
            "loop": "evoseek.rollout.settings:AgentSettings",
            "command": "evoseek.rollout.settings:CommandSettings",
        },
    ),
    "environment": Kind(
        "how a solver is asked, with which tools",
        {
            "solver": "evoseek.rollout.environments:SolverEnv",
            "search_first": "evoseek.rollout.environments:SearchFirstEnv",
            "notes": "evoseek.rollout.environments:NotesEnv",
        },
        ("messages(question)", "role", "tools"),
    ),
    "tool": Kind(
        "something that a policy can call",
        {
            "search": "evoseek.rollout.tools:SearchTool",
            "note": "evoseek.rollout.tools:note",
            "web_search": "evoseek.web.tools:WebSearchTool",
            "browse": "evoseek.web.tools:BrowseTool",
        },
        (_BIND, "async __call__(call)", "name", "schema"),
        of_function="evoseek.rollout.tools:FunctionTool",
    ),
    "search": Kind(
        "a search engine",
        {
            "auto": "evoseek.search.opening:AsBuilt",
            "lexical": "evoseek.search.lexical:Lexical",
            "dense": "evoseek.search.dense:Dense",
            "hybrid": "evoseek.search.dense:Hybrid",
            "remote": "evoseek.search.remote:RemoteEngine",
        },
        ("async search(queries, k)", "is_local"),
        or_needs=(_BIND,),
        optional={"retries": "True if the engine retries by itself: a search that fails is not repeated"},
    ),
    "encoder": Kind(
        "texts to vectors, for dense search",
        {
            "static": "evoseek.search.encoders:StaticEncoder",
            "minilm": "evoseek.search.encoders:MiniLM",
            "sentence-transformers": "evoseek.search.encoders:SentenceEncoder",
        },
        ("queries(texts)", "passages(texts)", "record"),
    ),
    "reward": Kind(
        "the reward of a finished rollout",
        {
            **dict.fromkeys(("exact_match", "substring_match", "guarded_substring_match", "f1", "set_f1"), _ANSWER),
            "format_f1": "evoseek.reward.functions:WebFormatReward",
            "cited_f1": "evoseek.agent.answer:CitedF1",
            "fan_out": "evoseek.reward.functions:FanOutReward",
            "judge": "evoseek.reward.judge:Judge",
        },
        ("__call__(trajectory)",),
        optional={"lowest": "the lowest reward, 0 by default: an Invalid rollout in an evaluation counts as this"},
    ),
    "credit": Kind(
        "from rewards to advantages",
        {
            "group": "evoseek.credit:GroupCredit",
            "leave-one-out": "evoseek.credit:LeaveOneOutCredit",
            "whitened": "evoseek.credit:whitened_advantages",
            "raw": "evoseek.credit:raw_advantages",
            "gae": "evoseek.credit:CriticCredit",
        },
        ("__call__(rewards, groups)",),
        optional={
            "is_relative": "True if equal rewards in a group give no signal: training warns of such groups",
            "needs_critic": "True if __call__(rewards, values) gets a critic's values of a rollout's tokens instead",
            "trajectories": "an argument of __call__: the rollouts. It may then return a list for one, a number a turn",
        },
    ),
    "loss": Kind(
        "what the learner differentiates",
        {
            "clipped": "evoseek.loss.clipped:ClippedLoss",
            "sequence": "evoseek.loss.clipped:SequenceLoss",
            "reinforce": "evoseek.loss.likelihood:ReinforceLoss",
        },
        ("contributes(sample)", "__call__(inputs, totals)"),
        optional={
            "aggregate": "how tokens are aggregated, also in the terms of KL and entropy; token-mean by default",
            "level": "token (by default) or sequence: what an importance weight belongs to",
        },
        settings={
            "clipped": "evoseek.loss.settings:ClippedSettings",
            "sequence": "evoseek.loss.settings:SequenceSettings",
            "reinforce": "evoseek.loss.settings:ReinforceSettings",
        },
    ),
    "sampler": Kind(
        "tokens in, tokens out",
        {
            "torch": "evoseek.samplers.torch.sampler:TorchSampler",
            "vllm": "evoseek.samplers.vllm.sampler:VLLMSampler",
        },
        ("async sample(request)", "release(trajectory_id)", "update_weights(version, weights)", "policy_version"),
        settings={
            "torch": "evoseek.models.settings:TorchSamplerSettings",
            "vllm": "evoseek.models.settings:EngineSettings",
            "tinker": "evoseek_tinker.settings:TinkerSamplerSettings",
        },
        packaged={"tinker": "evoseek_tinker.sampler:TinkerSampler"},
    ),
    "learner": Kind(
        "forward, backward and the optimizer",
        {"torch": "evoseek.learner.learner:Learner"},
        ("update(samples)",),
        settings={
            "torch": "evoseek.learner.settings:LearnerSettings",
            "tinker": "evoseek_tinker.settings:TinkerSettings",
        },
        packaged={"tinker": "evoseek_tinker.learner:TinkerLearner"},
    ),
    "baseline": Kind(
        "a way to answer that trains nothing, for `evoseek eval --baseline`",
        {
            "direct": "evoseek.eval.baselines:Direct",
            "cot": "evoseek.eval.baselines:ChainOfThought",
            "rag": "evoseek.eval.baselines:RAG",
            "ircot": "evoseek.eval.baselines:IRCoT",
            "search-o1": "evoseek.eval.baselines:SearchO1",
            "ragent": "evoseek.eval.baselines:RAgent",
        },
        ("async __call__(attempt)", "searches"),
    ),
    "question_writer": Kind(
        "writes the questions of a cold start from passages",
        {
            "rules-en": "evoseek.questions.writers.rules_en.writer:RulesEn",
            "headings-en": "evoseek.questions.writers.headings:HeadingsEn",
        },
        ("async write(documents, number)",),
        settings=dict.fromkeys(("rules-en", "headings-en"), "evoseek.questions.writers.base:QuestionWriterSettings"),
    ),
    "tracker": Kind(
        "takes the numbers of a step, beside metrics.jsonl",
        {
            "tensorboard": "evoseek.training.trackers:TensorBoard",
            "wandb": "evoseek.training.trackers:Wandb",
            "trackio": "evoseek.training.trackers:Trackio",
        },
        ("write(step, metrics)",),
        optional={"close()": "called at the end of the run"},
    ),
}


def find(kind: str, name: str) -> Any:
    """Return the class or function of a name, or of `package.module:Name`. Raises ConfigError if it does not exist or
    is of another kind."""
    check_name(kind, name)
    path = {**KINDS[kind].parts, **KINDS[kind].packaged}.get(name, name)
    part = _load(kind, path)
    if path is name:
        check_part(kind, name, part)
    return part


def settings_class(kind: str, name: str) -> Any:
    """Return the `Settings` of a part; None if it has no own ones. Raises ConfigError as `find` does."""
    check_name(kind, name)
    path = KINDS[kind].settings.get(name)
    return _load(kind, path) if path else getattr(find(kind, name), "Settings", None)


def build(kind: str, settings: Any, context: object) -> Any:
    """Make the part `settings.name`: the result of its `build(settings, context)`; else an instance of the class, made
    from its settings if it has its own `Settings`; else the function itself."""
    part = find(kind, settings.name)
    if settings.name in KINDS[kind].parts:
        return as_part(kind, _make(part, settings, context))
    try:
        made = as_part(kind, _make(part, settings, context))
    except EvoseekError:
        raise
    except Exception as error:
        if words := moved_words(error):
            raise ConfigError(f"The {kind} {settings.name!r} imports {words}") from error
        raise ConfigError(f"Making the {kind} {settings.name!r} failed ({type(error).__name__}: {error}).") from error
    check_part(kind, settings.name, made)
    return made


def as_part(kind: str, given: Any) -> Any:
    """Return the part that a function makes, for a kind that can be made from functions; anything else unchanged."""
    return _load(kind, KINDS[kind].of_function)(given) if _is_enough(kind, given) else given


def _is_enough(kind: str, given: Any) -> bool:
    return bool(KINDS[kind].of_function) and inspect.isroutine(given)


def _make(part: Any, settings: Any, context: object) -> Any:
    if hasattr(part, "build"):
        return part.build(settings, context)
    if isinstance(part, type):
        return part(settings) if "Settings" in vars(part) else part()
    return part


def check_name(kind: str, name: str) -> None:
    """Raise ConfigError for a name that is neither known nor an import path. Nothing is imported."""
    known = {**KINDS[kind].parts, **KINDS[kind].packaged}
    if name in known or ":" in name:
        return
    hint = did_you_mean(name, known)
    raise ConfigError(
        f"There is no {kind} {name!r}.{hint} Choose one of {', '.join(known)} (`evoseek list {kind}` describes them), "
        f"or give your own {kind} as package.module:Name."
    )


def _load(kind: str, path: str) -> Any:
    module, _, name = path.partition(":")
    if not is_import_path(path):
        raise ConfigError(
            f"The {kind} {path!r} is not an import path. Expected package.module:Name, as in mine.loss:CISPO."
        )
    _look_beside(module)
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        if words := moved_words(error, module):
            raise ConfigError(f"The {kind} {path!r} imports {words}") from error
        packages = {path.partition(".")[0]: name for name, path in KINDS[kind].packaged.items()}
        if found := packages.get(error.name or ""):
            raise ConfigError(
                f"The {kind} {found} is in the package evoseek-{found}, which is not installed. Install it with `pip "
                f"install evoseek-{found}` (in evoseek's repository: `pip install packages/{found}`)."
            ) from error
        raise ConfigError(
            f"The {kind} {path!r} cannot be imported: {error}. Expected package.module:Name of a module that "
            f"`python -c 'import {module}'` finds: install its package, or start in its folder."
        ) from error
    except AttributeError as error:
        if module not in sys.modules:  # the import failed inside the module
            raise ConfigError(f"Importing the {kind} {path!r} failed (AttributeError: {error}).") from error
        names = [name for name in dir(sys.modules[module]) if not name.startswith("_")]
        hint = did_you_mean(name, names)
        raise ConfigError(f"The module {module} has no {name!r}, which was given as {kind}.{hint}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"Importing the {kind} {path!r} failed ({type(error).__name__}: {error}).") from error
    return found


def moved() -> Mapping[str, str]:
    """Return the old names of modules, each with the new one, without `evoseek.`."""
    return tomllib.loads(Path(__file__).with_name("moved.toml").read_text(encoding="utf-8"))


def moved_words(error: BaseException | None, module: str = "") -> str:
    """Return which module of evoseek a failed import asked for, and where it is now; "" if it asked for something else.
    The statement itself is read, since an error names only the first missing part."""
    if not isinstance(error, ImportError):
        return ""
    frame = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename][-1]
    first = frame.lineno or 1
    lines = (linecache.getline(frame.filename, at) for at in range(first, (frame.end_lineno or first) + 1))
    before, _, after = re.sub("#.*", "", "".join(lines)).partition("import")
    named = [module, *re.findall(r"\bevoseek\b(?:\.\w+)*", before + after)]
    inner = [f"{name}.{word}" for name in named if name in before for word in re.findall(r"\w+", after)]
    names = [name.removeprefix("evoseek.") for name in (*inner, *named) if name.startswith("evoseek.")]
    for old in names:
        if new := moved().get(old):
            return f"evoseek.{old}, which is now evoseek.{new}. Import it from there."
        rooms = sorted({new.rpartition(".")[0] for name, new in moved().items() if name.startswith(f"{old}.")})
        if rooms and f"evoseek.{old}" not in sys.modules:
            return (
                f"evoseek.{old}, whose modules are now in evoseek.{', evoseek.'.join(rooms)}. Import them from there."
            )
    is_gone = names and isinstance(error, ModuleNotFoundError) and str(error.name).startswith("evoseek.")
    return f"evoseek.{names[-1]}, which this version does not have (CHANGELOG.md, Removed)." if is_gone else ""


def _look_beside(module: str) -> None:
    """Add the working folder to the import path, as `python -m` does, if a module's package is found only there.
    Raises ConfigError if a file or folder on the module's path is another user's."""
    folder, package = os.getcwd(), module.partition(".")[0]
    if folder in sys.path and folder not in _beside:
        return
    specs = list(_specs(module, folder))
    is_imported = package in sys.modules
    known = getattr(sys.modules[package], "__spec__", None) if is_imported else find_spec(package)
    if not specs or ((is_imported or known) and _places(known) != _places(specs[0])):  # found elsewhere
        return
    for place in (folder, *(place for spec in specs for place in _places(spec))):
        check_owner(Path(place), f"where {module} is found", f"start with PYTHONPATH={folder}")
    _beside.add(folder)
    if folder not in sys.path:
        sys.path.append(folder)


def _specs(module: str, folder: str) -> Iterator[ModuleSpec]:
    """Yield the packages on a module's dotted path, then the module, as found in a folder. Nothing is imported."""
    places = [folder]
    for name in module.split("."):
        if (spec := PathFinder.find_spec(name, places)) is None:
            return
        yield spec
        places = list(spec.submodule_search_locations or ())


def _places(spec: ModuleSpec | None) -> list[str]:
    places = (spec.origin, spec.cached, *(spec.submodule_search_locations or ())) if spec else ()
    return [place for place in places if place and os.path.exists(place)]


def check_part(kind: str, name: str, part: Any) -> None:
    """Raise ConfigError if a class, function or object is not a part of this kind. `name` is its name in the error."""
    about = KINDS[kind]
    if _is_enough(kind, part):
        return
    needs = about.or_needs if about.or_needs and hasattr(part, "for_question") else about.needs
    wanted = needs
    if isinstance(part, type) and hasattr(part, "build") and _BUILD not in needs:
        wanted = (_BUILD,)  # which may make anything
    elif isinstance(part, type) and not hasattr(part, "build"):
        wanted = (*needs, f"{part.__name__}({'settings' if 'Settings' in vars(part) else ''})")
    if fault := next(filter(None, (_fault(part, need, about.optional) for need in wanted)), ""):
        raise ConfigError(
            f"{name} is given as {kind}, but {fault}. {'An' if kind[0] in 'aeiou' else 'A'} {kind} ({about.what}) "
            f"needs {', '.join(needs)}; `evoseek list {kind}` lists the built-in ones for comparison."
        )


def _fault(part: Any, need: str, optional: Container[str]) -> str:
    """Describe why a part does not meet this need; "" if it does, or if only an instance can tell. An `optional`
    argument is given if the part has it."""
    name, is_method, arguments = need.removeprefix("async ").partition("(")
    is_class = isinstance(part, type)
    if is_class and name == part.__name__:
        found = part
    elif name == "__call__":
        if not callable(part) or (is_class and not any(name in vars(base) for base in part.__mro__[:-1])):
            return "it cannot be called"
        found = part if inspect.isroutine(part) else part.__call__
    elif hasattr(part, name):
        found = getattr(part, name)
    else:
        return f"it has no {name}" if is_method or not is_class or name[0].isupper() else ""
    if not is_method:
        return ""
    plain, _, keywords = arguments.rstrip(")").partition("*, ")
    given = plain.strip(", ").split(", ") if plain else []
    if is_class and name != "build" and inspect.isfunction(inspect.getattr_static(part, name, None)):
        given = ["self", *given]
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):  # of C code, which has none
        return ""
    more = (argument for argument in signature.parameters if argument in optional)
    try:
        signature.bind(*given, **dict.fromkeys((*filter(None, keywords.split(", ")), *more)))
    except TypeError as error:
        hint = "; @classmethod is missing" if name == "build" and "self" in signature.parameters else ""
        return f"its {name}{signature} cannot be called as {need} ({error}{hint})"
    body = inspect.unwrap(found)
    body = getattr(body, "__func__", body)
    is_wrong = need.startswith("async ") and inspect.isfunction(body) and not inspect.iscoroutinefunction(body)
    return f"its {name}{signature} is not a coroutine function (async def)" if is_wrong else ""
