"""Settings: typed, read from TOML, overridden on the command line, saved beside every output.

Three sources, the later wins: a config file, the command's own options, and `--set section.key=value`. Unknown keys
are refused with the nearest name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from evoseek.errors import ConfigError
from evoseek.runs import flatten

Tree = dict[str, Any]

MANY = 10_000_000  # steps, tokens: above any use, below what overflows
COLDEST, HOTTEST = 0.01, 10.0


def _greedy_or_drawn(temperature: float) -> float:
    if temperature != 0 and not COLDEST <= temperature <= HOTTEST:
        raise ValueError(f"must be 0 (greedy) or from {COLDEST} to {HOTTEST:g}")
    return temperature


Count = Annotated[int, Field(ge=1, le=MANY)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Temperature = Annotated[float, Field(ge=COLDEST, le=HOTTEST)]
AnyTemperature = Annotated[float, AfterValidator(_greedy_or_drawn)]


class Section(BaseModel):
    """A table of settings. Unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PolicyConfig(Section):
    """The model that is trained or asked."""

    model: str = Field(default="tiny", description="`tiny`, a directory, or a Hugging Face name")
    format: Literal["auto", "tags", "tools"] = Field(
        default="auto", description="tool calls by tags or by the chat template"
    )
    prompts: str = Field(default="auto", description="prompt set: a name, a directory, or `auto` by the model")
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"


class SearchConfig(Section):
    """What the search tool searches."""

    index: str = Field(default="", description="directory of a lexical index that `evoseek index` made")
    top_k: int = Field(default=3, ge=1, le=1000)


class QuestionsConfig(Section):
    """What is asked in training."""

    path: str = Field(default="", description="JSON lines of questions")
    per_step: int = Field(default=20, ge=1, le=100_000)


class RolloutConfig(Section):
    """How rollouts are made and where they end."""

    group_size: int = Field(default=8, ge=2, le=10_000)
    temperature: Temperature = 1.0
    slots: int = Field(default=160, ge=1, le=10_000, description="rollouts whose keys and values are held at once")
    max_turns: int = Field(default=5, ge=1, le=10_000)
    max_tool_calls: int = Field(default=5, ge=0, le=10_000)
    max_tokens_per_turn: Count = 96
    max_total_tokens: int = Field(default=1600, ge=2, le=MANY)
    deadline_s: float | None = Field(default=None, gt=0, le=1e6, description="seconds; a rollout beyond it is Invalid")


class RewardConfig(Section):
    """What an answer is worth."""

    metric: Literal["exact_match", "substring_match", "guarded_substring_match", "f1", "set_f1"] = "exact_match"


class AlgorithmConfig(Section):
    """The estimator. The defaults are GRPO; recipes/algorithms names the others."""

    advantage: Literal["group", "leave-one-out", "whitened", "raw", "gae"] = Field(
        default="group", description="credit: GRPO, RLOO, REINFORCE++, REINFORCE, PPO (with a critic)"
    )
    scale: Literal["std", "none"] = "std"
    loss: Literal["clipped", "sequence", "reinforce"] = Field(
        default="clipped", description="one ratio a token, one a sequence (GSPO, DSPO), or none"
    )
    clip_low: float = Field(default=0.2, gt=0, le=1)
    clip_high: float = Field(default=0.2, gt=0, le=100)
    aggregate: Literal["token-mean", "sequence-mean-token-mean", "sequence-sum"] | Count = Field(
        default="token-mean", description="tokens to one number; a number: sums over that constant length (Dr. GRPO)"
    )
    mini_batches: int = Field(default=1, ge=1, le=1000, description="optimizer steps on every batch of rollouts")
    filter_limit: int = Field(
        default=0,
        ge=0,
        le=100,
        description="train only on groups with a signal, drawing at most so many times questions.per_step; 0: on all",
    )
    kl_coefficient: float = Field(default=0.0, ge=0, le=100)
    kl_estimator: Literal["k1", "k3"] = Field(default="k3", description="in the loss; in the reward it is k1")
    kl_in: Literal["loss", "reward"] = "loss"
    entropy_coefficient: float = Field(default=0.0, ge=0, le=100)
    importance: Literal["none", "truncate", "mask"] = Field(
        default="none", description="correct for differences between sampler and learner"
    )
    importance_cap: float = Field(default=2.0, gt=1, le=1e6)
    mask_observations: bool = Field(default=True, description="false trains on tool results too: an ablation")


class CriticConfig(Section):
    """The critic of algorithm.advantage = "gae". Its weights begin as the policy's, with a head that says 0."""

    learning_rate: float = Field(default=3e-4, gt=0, le=1)
    warmup_steps: int = Field(default=0, ge=0, le=MANY)
    gamma: float = Field(default=1.0, gt=0, le=1)
    lam: float = Field(default=1.0, ge=0, le=1)
    clip: float = Field(default=0.2, gt=0, le=1e6, description="of a value's change, around the old one")
    policy_after: int = Field(default=0, ge=0, le=MANY, description="steps in which only the critic learns")


class LoraConfig(Section):
    """Train a low-rank adapter instead of the weights."""

    rank: int = Field(default=0, ge=0, le=4096, description="0: train all weights")
    alpha: float = Field(default=32.0, gt=0, le=1e6)
    targets: str | tuple[str, ...] = Field(default="all-linear", description="modules by name, or all-linear")


class LearnerConfig(Section):
    """The optimizer."""

    learning_rate: float = Field(default=3e-4, gt=0, le=1)
    warmup_steps: int = Field(default=0, ge=0, le=MANY)
    weight_decay: float = Field(default=0.01, ge=0, le=10)
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    max_grad_norm: float = Field(default=1.0, gt=0, le=1e6)
    token_budget: Count = Field(default=2048, description="tokens of a micro-batch")
    bf16: bool = Field(default=False, description="compute in bfloat16 (autocast); the weights stay in float32")
    gradient_checkpointing: bool = Field(default=False, description="less memory, more time")


class EvaluationConfig(Section):
    """Held-out questions while training."""

    path: str = Field(default="", description="JSON lines of questions; none: no evaluation")
    index: str = Field(default="", description="their index, if it is not the training index")
    every: int = Field(default=10, ge=0, le=MANY)
    limit: Count | None = Field(default=None, description="use the first so many questions")
    temperature: AnyTemperature | None = Field(default=None, description="none: the rollouts' temperature; 0: greedy")


class RunConfig(Section):
    """The run as a whole."""

    seed: int = Field(default=0, ge=-(2**63), lt=2**63)
    steps: Count = 120
    checkpoint_every: Count = 10
    keep_checkpoints: Count = 2
    max_invalid: float = Field(
        default=0.5, ge=0, le=1, description="share of invalid rollouts; above it thrice, the run ends"
    )


class Config(Section):
    """Every setting of a training run. The defaults suit the tiny policy."""

    policy: PolicyConfig = PolicyConfig()
    search: SearchConfig = SearchConfig()
    questions: QuestionsConfig = QuestionsConfig()
    rollout: RolloutConfig = RolloutConfig()
    reward: RewardConfig = RewardConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    critic: CriticConfig = CriticConfig()
    lora: LoraConfig = LoraConfig()
    learner: LearnerConfig = LearnerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()

    def resolved(self) -> dict[str, object]:
        """Every setting, defaults included, as plain JSON values."""
        return self.model_dump(mode="json")


# What a system sets otherwise than the defaults of `Config`; a file, options and --set go before it.
SYSTEMS: Mapping[str, Mapping[str, object]] = {
    "search-r1": {},
    "dspo": {
        "reward.metric": "guarded_substring_match",
        "algorithm.loss": "sequence",
        "algorithm.clip_low": 3e-4,
        "algorithm.clip_high": 4e-4,
        "algorithm.mini_batches": 4,
        "algorithm.filter_limit": 4,
    },
}

# What a resumed run may change: nothing of it reaches the weights of a given step.
MAY_DIFFER_ON_RESUME = frozenset({"run.steps", "run.checkpoint_every", "run.keep_checkpoints", "run.max_invalid"})


def load_config(
    file: Path | None = None,
    *,
    system: str = "search-r1",
    options: Mapping[str, object] | None = None,
    sets: Iterable[str] = (),
) -> Config:
    """The config of a file, the command's options (dotted keys; None means not given) and `key=value` texts, over the
    defaults of a system.

    Raises ConfigError.
    """
    if system not in SYSTEMS:
        raise ConfigError(f"There is no system {system!r}. The systems are: {', '.join(SYSTEMS)}.")
    tree: Tree = {}
    for key, value in SYSTEMS[system].items():
        _put(tree, key, value)
    if file:
        tree = _merge(tree, read_tree(file))
    for key, value in (options or {}).items():
        if value is not None:
            _put(tree, key, value)
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set got {text!r}, expected key=value, as in --set learner.learning_rate=1e-4.")
        _put(tree, key.strip(), _parse_value(value.strip()))
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        problems = "; ".join(_describe(problem["loc"], problem["type"], problem) for problem in error.errors())
        where = f" (from {file}, the options and --set)" if file else ""
        raise ConfigError(
            f"The settings{where} are not valid: {problems}. Every setting with its default is in "
            "recipes/search_r1/tiny.toml."
        ) from error


def read_tree(file: Path) -> Tree:
    """A TOML config file, or the config.json of a run, as nested mappings. Raises ConfigError."""
    try:
        text = file.read_text(encoding="utf-8")
        tree = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        if not isinstance(tree, dict):
            raise ValueError(f"it holds {type(tree).__name__}, not an object of settings")
        return cast(Tree, tree)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The config file {file} cannot be read: {error}. It must be a TOML file with tables such as [learner] "
            "(or the config.json of an earlier run)."
        ) from error


def _parse_value(text: str) -> object:
    """A TOML value; what is no TOML value is a text, so that paths need no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _merge(tree: Tree, over: Tree) -> Tree:
    """`over` on top of `tree`, table by table."""
    return tree | {
        key: _merge(cast(Tree, tree[key]), cast(Tree, value))
        if isinstance(value, dict) and isinstance(tree.get(key), dict)
        else value
        for key, value in over.items()
    }


def _put(tree: Tree, dotted: str, value: object) -> None:
    *sections, key = dotted.split(".")
    for section in sections:
        inner = tree.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{dotted} cannot be set: {section} is {inner!r}, not a table of settings.")
        tree = cast(Tree, inner)
    tree[key] = value


def _describe(location: tuple[int | str, ...], kind: str, problem: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in location if isinstance(part, int) or part.isidentifier())
    if kind == "extra_forbidden":
        return f"unknown setting {key}{_nearest(key)}"
    return f"{key} is {problem['input']!r}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def _nearest(key: str) -> str:
    """A hint: settings of that very name in other tables, or else one that is spelt almost so."""
    known = [*flatten(Config().resolved()), *Config.model_fields]
    names = {setting: setting.rsplit(".", 1)[-1] for setting in known}
    name = key.rsplit(".", 1)[-1]
    matches = [setting for setting in known if names[setting] == name] or get_close_matches(key, known, 1, 0.75)
    if not matches:
        close = get_close_matches(name, set(names.values()), 1, 0.75)
        matches = [setting for setting in known if names[setting] in close]
    return f" (did you mean {' or '.join(matches)}?)" if matches else ""
