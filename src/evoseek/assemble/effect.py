"""Which settings have an effect where: one table. A setting that was changed and does nothing is refused."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch
from typing import NamedTuple, cast

from evoseek.config import Config, load_config
from evoseek.errors import ConfigError
from evoseek.runs import flatten


class Wanted(NamedTuple):
    """What a switch has to be, in words and as a test."""

    words: str
    holds: Callable[[object], bool]


class Effect(NamedTuple):
    """Settings (patterns), the switch that they need, and what it has to be; `instead` says what else does the work."""

    keys: str
    switch: str
    wanted: Wanted
    instead: str = ""


def _is(*values: str) -> Wanted:
    return Wanted(" or ".join(values), values.__contains__)


def _is_not(*values: str) -> Wanted:
    def holds(value: object) -> bool:
        return value not in values

    return Wanted(f"something else than {' or '.join(values)}", holds)


_ABOVE_0, _GIVEN, _TRUE = Wanted("above 0", bool), Wanted("given", bool), Wanted("true", bool)
_EMPTY = Wanted("empty", operator.not_)
_CHATS = ("judge", "simulator", "reader", "asked")
_ENDPOINT, _IN_PROCESS = (
    " ".join(f"{{0}}.{key}" for key in keys)
    for keys in (
        ("api_key_env", "timeout_s", "attempts", "structured", "max_tokens_name", "omit"),
        ("device", "dtype", "max_total_tokens"),
    )
)

_FROM_AN_ANSWER = "In ssp the proposer begins with an answer, not with a passage."

# All rows that a setting is in have to hold.
_EFFECTS = (
    Effect("simulator.* zerosearch.*", "run.system", _is("zerosearch")),
    Effect("web.* browse.* reader.*", "run.system", _is("deepresearcher")),
    Effect("dr_zero.*", "run.system", _is("dr-zero")),
    Effect("ssp.*", "run.system", _is("ssp")),
    Effect("proposer.* filters.* verification.* selfplay.*", "run.system", _is("dr-zero", "ssp")),
    Effect("proposer.frozen", "run.system", _is("dr-zero"), 'ssp.train = "solver" keeps the proposer from learning.'),
    Effect("proposer.show_source proposer.max_source_tokens", "run.system", _is("dr-zero"), _FROM_AN_ANSWER),
    Effect("proposer.learning_rate", "run.system", _is("dr-zero"), "In ssp one policy has learner.learning_rate."),
    Effect(
        "questions.path",
        "run.system",
        _is_not("dr-zero", "ssp"),
        "Self-play writes its questions itself; those to measure with are evaluation.path.",
    ),
    Effect("questions.per_step", "run.system", _is_not("ssp"), "ssp has selfplay.proposals_per_step."),
    Effect("rollout.group_size", "run.system", _is_not("ssp"), "ssp has proposer.attempts."),
    Effect(
        "search.index search.attempts search.wait_s evaluation.index",
        "run.system",
        _is_not("deepresearcher"),
        "deepresearcher searches the web, not an index: [web] says how.",
    ),
    Effect("evaluation.index evaluation.every evaluation.limit evaluation.temperature", "evaluation.path", _GIVEN),
    Effect(
        "reward.overlong_*",
        "run.system",
        _is_not("dr-zero", "ssp"),
        "In self-play a reward also says what share of answers is right.",
    ),
    Effect("judge.*", "reward.metric", _is("judge")),
    Effect("critic.*", "algorithm.advantage", _is("gae")),
    Effect("algorithm.scale", "algorithm.advantage", _is("group")),
    Effect("algorithm.clip_low algorithm.clip_high", "algorithm.loss", _is_not("reinforce")),
    Effect("algorithm.kl_estimator algorithm.kl_in", "algorithm.kl_coefficient", _ABOVE_0),
    Effect("algorithm.kl_estimator", "algorithm.kl_in", _is("loss")),
    Effect("algorithm.importance_cap", "algorithm.importance", _is_not("none")),
    Effect("lora.alpha lora.targets", "lora.rank", _ABOVE_0),
    Effect("proposer.scale proposer.singleton", "proposer.advantage", _is("group")),
    Effect("proposer.max_source_tokens", "proposer.show_source", _TRUE),
    Effect("verification.noise*", "verification.from_passages", _TRUE),
    Effect("ssp.reset_every", "ssp.fill", _is("replay-reset")),
    Effect("ssp.resample_limit", "ssp.fill", _is("resample")),
    Effect("reader.*_words reader.max_segments reader.skip_after", "reader.model", _GIVEN),
    Effect("browse.page_words", "reader.model", _EMPTY),
    Effect("web.api", "web.provider", _is("json")),
    Effect("web.cache_days", "web.cache", _GIVEN),
    Effect("web.ray_address", "web.ray_workers", _ABOVE_0),
    *(Effect(_ENDPOINT.format(chat), f"{chat}.base_url", _GIVEN) for chat in _CHATS),
    *(Effect(_IN_PROCESS.format(chat), f"{chat}.base_url", _EMPTY) for chat in _CHATS),
)

_ROLLOUTS = "policy.* lora.* search.* rollout.* web.* browse.* reader.* run.seed run.system"
_PLAIN_JUDGE = "judge.* policy.device run.seed run.max_invalid"

# What a command other than `train` reads, of what it is given with --set; a file may be shared with other commands.
_READ_BY = {
    "ask": f"{_ROLLOUTS} asked.*",
    "eval": f"{_ROLLOUTS} questions.path reward.* judge.* evaluation.path evaluation.index evaluation.limit "
    "evaluation.temperature",
    "propose": "policy.* lora.* search.* rollout.* reward.* judge.* proposer.* filters.* verification.* selfplay.* "
    "ssp.answers run.*",
    "simulator collect": "policy.* lora.* search.* questions.path rollout.* run.seed run.system",
    "simulator label": _PLAIN_JUDGE,
    "simulator tune": "policy.* lora.* learner.* simulator.* search.top_k run.seed",
    "simulator check": "policy.* lora.* search.* rollout.* simulator.* evaluation.* run.seed",
    "judge check": _PLAIN_JUDGE,
    "data filter": _PLAIN_JUDGE,
    "data contamination": "policy.* lora.* rollout.* run.seed run.max_invalid",
}
_RUNS_THE_SYSTEM = ("ask", "eval", "propose")  # the other commands take from the settings what their task needs
_ONLY_IN_TRAINING = ("evaluation.path",)  # as a switch: `eval` has questions of its own


def check_effect(config: Config) -> None:
    """Raise ConfigError for a setting of a training run that is not its system's default and has no effect.

    A run's saved config holds every setting; those that nobody changed are no reason to refuse it.
    """
    _check(config, _changed(config), _EFFECTS)


def check_given(config: Config, command: str, sets: Iterable[str], options: Iterable[str] = ()) -> None:
    """Raise ConfigError for a setting of a command's --set that it does not read, or whose switch is off. `options` are
    settings that the command's own options gave."""
    names = [text.partition("=")[0].strip() for text in sets]
    changed = _changed(config)
    given = [key for key in changed if any(key == name or key.startswith(f"{name}.") for name in names)]
    for key in given:
        if not _matches(key, _READ_BY[command]):
            users = [name for name, patterns in _READ_BY.items() if _matches(key, patterns)]
            raise ConfigError(
                f"{key} was given with --set, but `evoseek {command}` does not use it. Leave it out; it is for "
                f"`evoseek {'`, `evoseek '.join(users or ['train'])}`."
            )
    elsewhere = () if command in _RUNS_THE_SYSTEM else ("run.system", "reward.metric")
    rows = [row for row in _EFFECTS if row.switch not in (*_ONLY_IN_TRAINING, *elsewhere)]
    _check(config, [*given, *(key for key in options if key in changed)], rows)


def _check(config: Config, keys: Iterable[str], rows: Sequence[Effect]) -> None:
    values = flatten(config.resolved())
    for key in keys:
        for row in rows:
            if _matches(key, row.keys) and not row.wanted.holds(values[row.switch]):
                remedy = f"train {row.wanted.words}" if row.switch == "run.system" else f"set {row.switch} so"
                raise ConfigError(
                    f"{key} is set, but it has no effect here: it needs {row.switch} to be {row.wanted.words}, and "
                    f"that is {values[row.switch]!r}. {row.instead} Leave {key} out, or {remedy}.".replace("  ", " ")
                )


def _changed(config: Config) -> list[str]:
    """The settings that are not the defaults of the config's system."""
    defaults = _settings(load_config(system=config.run.system))
    return [key for key, value in _settings(config).items() if defaults[key] != value]


def _settings(config: Config) -> dict[str, object]:
    """Every setting by its dotted key; a table that is a single setting (web.options, web.api) stays whole."""
    sections = cast("Mapping[str, Mapping[str, object]]", config.resolved())
    return {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}


def _matches(key: str, patterns: str) -> bool:
    return any(fnmatch(key, pattern) for pattern in patterns.split())
