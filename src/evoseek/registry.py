"""The registry of parts that can be chosen by name: the kinds of parts, and the class or function behind each name.

A part that comes with evoseek has one line here. Wherever a name is accepted, `package.module:Name` is accepted too, so
a part of your own needs no line. Nothing is imported before it is needed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evoseek.errors import ConfigError
from evoseek.trust import check_owner, is_import_path


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of part: what it is, the built-in ones by name, and the methods that a class of this kind must have.

    If `methods` is just `__call__`, a function is enough; for any kind, a class whose `build` makes the part is.
    `is_heavy` means that the built-in parts import torch.
    """

    what: str
    parts: Mapping[str, str]
    methods: tuple[str, ...] = ("__call__",)
    is_heavy: bool = False


_ANSWER = "evoseek.reward.functions:AnswerReward"

KINDS: Mapping[str, Kind] = {
    "system": Kind(
        "a training algorithm, one step at a time",
        {
            "search-r1": "evoseek.systems.search_r1:SearchR1",
            "dspo": "evoseek.systems.dspo:DSPO",
            "zerosearch": "evoseek.systems.zerosearch:ZeroSearch",
            "deepresearcher": "evoseek.systems.deepresearcher:DeepResearcher",
            "dr-zero": "evoseek.systems.dr_zero:DrZero",
            "ssp": "evoseek.systems.ssp:SSP",
            "sft": "evoseek.systems.sft:SFT",
        },
        ("build", "step", "Settings"),
    ),
    "environment": Kind(
        "how a solver is asked, with which tools", {"solver": "evoseek.env.solver:SolverEnv"}, ("messages",)
    ),
    "tool": Kind(
        "something that a policy can call",
        {
            "search": "evoseek.env.tools:SearchTool",
            "web_search": "evoseek.env.web_tools:WebSearchTool",
            "browse": "evoseek.env.web_tools:BrowseTool",
        },
    ),
    "order": Kind(
        "which questions a step asks",
        {
            "uniform": "evoseek.training.question_order:UniformOrder",
            "difficulty": "evoseek.training.question_order:DifficultyOrder",
        },
    ),
    "search": Kind(
        "a search engine",
        {
            "auto": "evoseek.search.opening:AsBuilt",
            "lexical": "evoseek.search.lexical:Lexical",
            "dense": "evoseek.search.dense:Dense",
            "hybrid": "evoseek.search.hybrid:Hybrid",
            "remote": "evoseek.search.remote:Remote",
            "faiss": "evoseek.search.faiss_file:Faiss",
        },
        ("search",),
    ),
    "encoder": Kind(
        "texts to vectors, for dense search",
        {
            "static": "evoseek.search.encoders.static:StaticEncoder",
            "minilm": "evoseek.search.encoders.sentence:MiniLM",
            "sentence-transformers": "evoseek.search.encoders.sentence:SentenceEncoder",
        },
        ("queries", "passages"),
    ),
    "reward": Kind(
        "what a finished rollout is worth",
        {
            **dict.fromkeys(("exact_match", "substring_match", "guarded_substring_match", "f1", "set_f1"), _ANSWER),
            "format_f1": "evoseek.reward.web_format:WebFormatReward",
            "fan_out": "evoseek.reward.fan_out:FanOutReward",
            "judge": "evoseek.reward.judge:Judge",
        },
    ),
    "credit": Kind(
        "from rewards to advantages",
        {
            "group": "evoseek.credit.parts:GroupCredit",
            "leave-one-out": "evoseek.credit.parts:LeaveOneOutCredit",
            "whitened": "evoseek.credit.parts:WhitenedCredit",
            "raw": "evoseek.credit.parts:RawCredit",
            "gae": "evoseek.credit.parts:CriticCredit",
        },
    ),
    "loss": Kind(
        "what the learner differentiates",
        {
            "clipped": "evoseek.loss.clipped:ClippedLoss",
            "sequence": "evoseek.loss.sequence:SequenceLoss",
            "reinforce": "evoseek.loss.reinforce:ReinforceLoss",
        },
        ("contributes", "__call__"),
        is_heavy=True,
    ),
    "sampler": Kind(
        "tokens in, tokens out",
        {
            "torch": "evoseek.policy.sampler:TorchSampler",
            "vllm": "evoseek.policy.engines.vllm:VLLMSampler",
            "sglang": "evoseek.policy.engines.sglang:SGLangSampler",
            "tinker": "evoseek.policy.tinker.sampler:TinkerSampler",
        },
        ("sample", "release"),
        is_heavy=True,
    ),
    "learner": Kind(
        "forward, backward and the optimizer",
        {"torch": "evoseek.learner.learner:Learner", "tinker": "evoseek.learner.tinker:TinkerLearner"},
        ("update",),
        is_heavy=True,
    ),
    "baseline": Kind(
        "a way to answer that trains nothing, for `evoseek eval --baseline`",
        {
            "direct": "evoseek.eval.baselines.direct:Direct",
            "cot": "evoseek.eval.baselines.chain_of_thought:ChainOfThought",
            "rag": "evoseek.eval.baselines.rag:RAG",
            "ircot": "evoseek.eval.baselines.ircot:IRCoT",
            "search-o1": "evoseek.eval.baselines.search_o1:SearchO1",
            "ragent": "evoseek.eval.baselines.ragent:RAgent",
        },
        ("searches", "__call__"),
    ),
    "tracker": Kind(
        "takes the numbers of a step, beside metrics.jsonl",
        {
            "tensorboard": "evoseek.report.trackers.tensorboard:TensorBoard",
            "wandb": "evoseek.report.trackers.wandb:Wandb",
            "trackio": "evoseek.report.trackers.trackio:Trackio",
        },
        ("write",),
    ),
}


def find(kind: str, name: str) -> Any:
    """The class or function of a name, or of `package.module:Name`. Raises ConfigError if it does not exist or is of
    another kind."""
    check_name(kind, name)
    path = KINDS[kind].parts.get(name, name)
    part = _load(kind, path)
    if path is name:
        check_part(kind, name, part)
    return part


def build(kind: str, settings: Any, context: object) -> Any:
    """Make a part: the result of its `build(settings, context)`; else an instance of the class, made from its settings
    if it has its own `Settings`; else the function itself. `settings.name` names it."""
    part = find(kind, settings.name)
    if hasattr(part, "build"):
        return part.build(settings, context)
    if isinstance(part, type):
        return part(settings) if "Settings" in vars(part) else part()
    return part


def check_name(kind: str, name: str) -> None:
    """Raises ConfigError for a name that is neither known nor an import path. Nothing is imported."""
    known = KINDS[kind].parts
    if name in known or ":" in name:
        return
    close = get_close_matches(name, known, 1)
    hint = f" Did you mean {close[0]}?" if close else ""
    names = f"There are {', '.join(known)}; or give" if known else "Give"
    raise ConfigError(
        f"There is no {kind} {name!r}.{hint} {names} one of your own as package.module:Name "
        f"(`evoseek parts {kind}` lists them)."
    )


def _load(kind: str, path: str) -> Any:
    module, _, name = path.partition(":")
    if not is_import_path(path):
        raise ConfigError(
            f"The {kind} {path!r} is no import path. Expected package.module:Name, as in mine.loss:CISPO."
        )
    _look_beside(module.partition(".")[0])
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise ConfigError(
            f"The {kind} {path!r} cannot be imported: {error}. Expected package.module:Name of a module that "
            f"`python -c 'import {module}'` finds: install its package, or start in its folder."
        ) from error
    except AttributeError as error:
        names = [name for name in dir(sys.modules[module]) if not name.startswith("_")]
        close = get_close_matches(name, names, 1)
        hint = f" Did you mean {module}:{close[0]}?" if close else ""
        raise ConfigError(f"The module {module} has no {name!r}, which was given as {kind}.{hint}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"Importing the {kind} {path!r} failed ({type(error).__name__}: {error}).") from error
    return found


def _look_beside(package: str) -> None:
    """Add the working folder to where modules are found, as `python -m` does, if a package or module is there alone.
    Raises ConfigError if it is another user's."""
    folder = os.getcwd()
    if folder in sys.path or package in sys.modules or find_spec(package) is not None:
        return
    if (found := PathFinder.find_spec(package, [folder])) is not None:
        for place in filter(None, (folder, found.origin, *(found.submodule_search_locations or ()))):
            check_owner(Path(place), f"where {package} is found", f"start with PYTHONPATH={folder}")
        sys.path.append(folder)


def check_part(kind: str, name: str, part: Any) -> None:
    """Raises ConfigError for a class, function or object that is no part of a kind. `name` is what it is called."""
    wanted = KINDS[kind]
    if hasattr(part, "build") and "build" not in wanted.methods:  # which may make anything
        return
    missing = [method for method in wanted.methods if not hasattr(part, method)]
    is_called = wanted.methods == ("__call__",)
    if missing or (is_called and (not callable(part) or _is_class_without_call(part))):
        what = f"has no {missing[0]}" if missing else "cannot be called"
        raise ConfigError(
            f"{name} is given as {kind}, but it {what}. A {kind} ({wanted.what}) needs {', '.join(wanted.methods)}; "
            f"`evoseek parts {kind}` lists those that come with evoseek, to compare it with."
        )


def _is_class_without_call(part: Any) -> bool:
    """A class is callable even if its instances are not, so `__call__` is looked up in another way."""
    return isinstance(part, type) and not any("__call__" in vars(base) for base in part.__mro__ if base is not object)
