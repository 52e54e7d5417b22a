"""Settings: typed, read from TOML, overridden on the command line, saved beside every output.

Three sources, the later wins: config files (of several the last), the command's own options, and `--set
section.key=value`. Unknown keys are refused with the nearest name.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from evoseek.errors import ConfigError
from evoseek.recipes.catalogue import find_config
from evoseek.reward.answer import RIGHT_FROM
from evoseek.runs import flatten

Tree = dict[str, Any]

MANY = 10_000_000  # steps, tokens: above any use, below what overflows
COLDEST, HOTTEST = 0.01, 10.0


def _greedy_or_drawn(temperature: float) -> float:
    if temperature != 0 and not COLDEST <= temperature <= HOTTEST:
        raise ValueError(f"must be 0 (greedy) or from {COLDEST} to {HOTTEST:g}")
    return temperature


def _above_zero(shares: tuple[float, ...]) -> tuple[float, ...]:
    if not any(shares):
        raise ValueError("at least one share must be above 0, as in [4, 3, 2, 1]")
    return shares


Count = Annotated[int, Field(ge=1, le=MANY)]
Share = Annotated[float, Field(ge=0, le=MANY)]
Decay = Annotated[float, Field(ge=0, lt=1)]
Temperature = Annotated[float, Field(ge=COLDEST, le=HOTTEST)]
AnyTemperature = Annotated[float, AfterValidator(_greedy_or_drawn)]


class Section(BaseModel):
    """A table of settings. Unknown keys and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def changed(self) -> list[str]:
        """The keys whose values are not the defaults."""
        before = type(self)().model_dump()
        return [key for key, value in self.model_dump().items() if value != before[key]]


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
    attempts: int = Field(default=4, ge=1, le=100, description="calls of a failing engine, before a rollout is Invalid")
    wait_s: float = Field(default=0.5, ge=0, le=3600, description="before the second of them; doubles")


class ChatConfig(Section):
    """A model that is written to and replies: in this process, or behind an endpoint."""

    model: str = Field(default="", description="a model as policy.model, or the endpoint's name for one; none: none")
    base_url: str = Field(default="", description="of an OpenAI-compatible endpoint; none: the model runs in here")
    api_key_env: str = Field(default="", description="the environment variable that holds the endpoint's key")
    device: str = Field(default="", description="of a model in here; none: the policy's")
    dtype: Literal["float32", "bfloat16", "float16"] = Field(default="float32", description="of a model in here")
    prompts: str = Field(default="auto", description="prompt set, as policy.prompts")
    temperature: AnyTemperature = 0.0
    max_tokens: int = Field(default=512, ge=1, le=MANY, description="of a reply; a longer one is a failure")
    max_total_tokens: int = Field(default=4096, ge=2, le=MANY, description="of prompt and reply, for a model in here")
    timeout_s: float = Field(default=60.0, gt=0, le=86_400, description="of one call of the endpoint")
    attempts: int = Field(default=4, ge=1, le=100, description="calls of a failing endpoint")
    concurrency: int = Field(default=32, ge=1, le=10_000, description="calls at once; in here: replies sampled at once")
    structured: bool = Field(default=True, description="false: an endpoint is not sent the form of a reply")
    max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="what the endpoint calls it"
    )
    omit: tuple[Literal["temperature", "seed"], ...] = Field(default=(), description="what it does not take")


class AskedConfig(ChatConfig):
    """Who answers `evoseek ask` in the policy's place (asked.model or asked.base_url; none: the policy does)."""

    model: str = Field(
        default="",
        description="as policy.model, but one that ends its turns (an instruct model), or the endpoint's name for one; "
        "none: the policy is asked, that of a run with --run-dir",
    )
    max_tokens: int = Field(default=2048, ge=1, le=MANY, description="of a reply, with the thought in it")


class JudgeConfig(ChatConfig):
    """Who says whether an answer is right (reward.metric = "judge")."""


class SimulatorConfig(ChatConfig):
    """Who plays the search engine (zerosearch; ZeroSearch, arXiv 2505.04588)."""

    temperature: AnyTemperature = 1.0
    max_words: int = Field(default=100, ge=1, le=MANY, description="of a document; a longer one is a failure")


class ZeroSearchConfig(Section):
    """How often simulated search is noisy: from the first step to the last, and how steeply."""

    noise_start: float = Field(default=0.0, ge=0, le=1)
    noise_end: float = Field(default=0.75, ge=0, le=1)
    noise_base: float = Field(default=4.0, gt=1, le=1e6, description="the higher, the later the noise comes")


class WebConfig(Section):
    """Who searches the web, and how often that is asked (deepresearcher; DeepResearcher, arXiv 2504.03160)."""

    provider: Literal["", "serper", "serpapi", "brave", "tavily", "searxng", "json"] = Field(
        default="", description="json: another one, described in web.api"
    )
    url: str = Field(default="", description="where its API is; none: the provider's own")
    api_key_env: str = Field(default="", description="the environment variable that holds its key; none: the usual one")
    options: dict[str, str | int | bool] = Field(default={}, description="sent with every request, such as a country")
    api: dict[str, Any] = Field(default={}, description="of json: results, title, link, snippet, query, ... (JsonApi)")
    max_queries: int = Field(default=3, ge=1, le=100, description="of one call of the tool")
    rate_per_s: float = Field(default=10.0, gt=0, le=1e6, description="requests a second; Ray's workers share it")
    concurrency: int = Field(default=32, ge=1, le=10_000, description="requests at once; with Ray, of each worker")
    budget: Count | None = Field(default=None, description="requests in all, shared as the rate; none: no limit")
    attempts: int = Field(default=4, ge=1, le=100, description="of a request")
    timeout_s: float = Field(default=3.5, gt=0, le=86_400, description="of an attempt")
    waiting: int = Field(default=4096, ge=0, le=MANY, description="calls of tools that wait in line at once")
    deadline_s: float = Field(default=120.0, gt=0, le=86_400, description="of a tool's call, its wait in line included")
    cache: str = Field(default="", description="an SQLite file that keeps results; none: they are not kept")
    cache_days: float = Field(default=7.0, gt=0, le=10_000)
    record: str = Field(default="", description="a file for all that web and reader say; rollouts wait for each other")
    replay: str = Field(default="", description="such a file, in the place of web and reader")
    ray_workers: int = Field(default=0, ge=0, le=10_000, description="processes of Ray that make the calls; 0: in here")
    ray_address: str = Field(default="", description="of a running Ray cluster; none: one on this machine")


class BrowseConfig(Section):
    """Which pages of the web are opened, and how."""

    max_urls: int = Field(default=3, ge=1, le=100, description="of one call of the tool")
    only_found: bool = Field(default=True, description="false opens pages that no search of the rollout found, too")
    page_words: Count = Field(default=400, description="of a page that are shown, where no [reader] reads it")
    timeout_s: float = Field(default=15.0, gt=0, le=86_400, description="of a page, with all that it takes")
    concurrency: int = Field(default=64, ge=1, le=10_000, description="pages at once")
    per_host: int = Field(default=2, ge=1, le=10_000, description="requests to a host at once")
    interval_s: float = Field(default=1.0, ge=0, le=3600, description="between requests to a host")
    attempts: int = Field(default=3, ge=1, le=100, description="of a page")
    wait_s: float = Field(default=0.5, ge=0, le=3600, description="before the second of them; doubles")
    obey_robots: bool = True
    offline: bool = Field(default=False, description="true opens no page: each is a failure")
    proxy: str = Field(default="", description="URL of a proxy; those of the environment are not used")
    ports: tuple[int, ...] = (80, 443)
    allow: tuple[str, ...] = Field(default=(), description="hosts, with all below them; none: every public one")
    deny: tuple[str, ...] = Field(
        default=(), description="hosts, with all below them, or at them (not through a proxy); before allow"
    )
    allow_private: tuple[str, ...] = Field(default=(), description="host:port that may be on this machine or network")
    extractors: int = Field(default=2, ge=1, le=256, description="processes that turn pages into text")


class ReaderConfig(ChatConfig):
    """Who reads pages for the policy (reader.model; none: it is shown their beginnings)."""

    segment_words: Count = Field(default=800, description="of a page, at a time")
    memory_words: Count = Field(default=400, description="of what is kept of a page")
    max_segments: int = Field(default=8, ge=1, le=10_000, description="of a page")
    skip_after: int = Field(default=2, ge=1, le=10_000, description="first segments without use; the page is skipped")


class QuestionsConfig(Section):
    """What is asked in training."""

    path: str = Field(default="", description="JSON lines of questions")
    per_step: int = Field(default=20, ge=1, le=100_000, description="ssp has selfplay.proposals_per_step instead")


class RolloutConfig(Section):
    """How rollouts are made and where they end."""

    group_size: int = Field(default=8, ge=2, le=10_000, description="ssp has proposer.attempts instead")
    temperature: Temperature = 1.0
    slots: int = Field(default=160, ge=1, le=10_000, description="rollouts whose keys and values are held at once")
    max_turns: int = Field(default=5, ge=1, le=10_000)
    max_tool_calls: int = Field(default=5, ge=0, le=10_000)
    max_malformed: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Number of turns with neither a call nor an answer that do not end a rollout: the model is told.",
    )
    final_answer: bool = Field(
        default=False,
        description="After too many calls (or more than max_malformed turns, if that is above 0) the model gets one "
        "more turn to answer, if max_turns leaves it.",
    )
    max_tokens_per_turn: Count = 96
    max_total_tokens: int = Field(default=1600, ge=2, le=MANY)
    deadline_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Seconds that the sampler may work on a rollout's own tokens; one that takes longer ends as it is, "
        "and is scored. Waiting is not counted.",
    )
    wait_s: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Seconds that a rollout may wait in all, for one of the slots, tools and engines; one that waits "
        "longer is Invalid. Default: as many as rollout.deadline_s.",
    )


class RewardConfig(Section):
    """What an answer is worth."""

    metric: Literal[
        "exact_match", "substring_match", "guarded_substring_match", "f1", "set_f1", "format_f1", "judge"
    ] = Field(default="exact_match", description="`judge` asks the model of [judge]; `format_f1` is DeepResearcher's")
    overlong_max: Count | None = Field(
        default=None,
        description="Number of tokens of a rollout's own at which DAPO's overlong penalty, added to the reward in "
        "training, reaches -1. Default: no penalty.",
    )
    overlong_cache: Count | None = Field(
        default=None, description="Number of tokens below reward.overlong_max over which that penalty grows from 0."
    )


class AlgorithmConfig(Section):
    """The estimator. The defaults are GRPO; the recipes in algorithms/ name the others."""

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


class ProposerConfig(Section):
    """How questions are proposed in self-play, what a proposal is worth, and how the proposer learns from that."""

    ratio: Annotated[tuple[Share, ...], AfterValidator(_above_zero)] = Field(
        default=(4.0, 3.0, 2.0, 1.0), min_length=1, description="shares of 1, 2, ... requested hops or searches"
    )
    temperature: Temperature = 1.0
    attempts: int = Field(default=5, ge=1, le=10_000, description="of the solver at every question")
    max_failed_attempts: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Share of the attempts at a question that may fail outside the solver, those that were rolled out "
        "again included. Above it the proposal is Invalid: attempts that search less fail less, and would pay it.",
    )
    max_turns: int = Field(default=6, ge=1, le=10_000)
    max_tokens_per_turn: Count = 160
    show_source: bool = Field(default=True, description="false hides the source passage (dr-zero): an ablation")
    max_source_tokens: Count = Field(default=256, description="where the source passage is cut")
    difficulty: Literal["linear", "parabolic", "uncertainty", "between", "failure"] = Field(
        default="linear", description="Dr. Zero, its ablation, R-Zero*, SQLM*, SSP"
    )
    format_weight: float = Field(default=0.5, ge=0, le=100, description="of Dr. Zero's format reward")
    rejected_reward: float = Field(default=0.0, ge=-100, le=100, description="of a rejected proposal; < 0 punishes")
    frozen: bool = Field(default=False, description="only the solver learns")
    per_task: int = Field(default=1, ge=1, le=1000, description="proposals from the same passage or answer")
    group_by: Literal["requested", "task"] = Field(
        default="requested", description="whose mean a reward is compared with: equal hops (HRPO), or the same task"
    )
    advantage: Literal["group", "raw"] = Field(default="group", description="group-relative, or REINFORCE")
    scale: Literal["std", "none"] = "std"
    singleton: Literal["raw", "zero", "drop"] = Field(default="zero", description="advantage in a group of one")
    aggregate: Literal["token-mean", "sequence-mean-token-mean", "sequence-sum"] = "token-mean"
    learning_rate: float | None = Field(default=None, gt=0, le=1, description="none: the learner's (dr-zero)")


class FiltersConfig(Section):
    """Which proposals are rejected by rule. An answer that stands in its question always is."""

    rules: Literal["auto", "basic", "full"] = Field(
        default="auto",
        description="full: also the wording is judged, in any language; auto: basic with the prompts of the tiny "
        "policies, else full (a run saves which)",
    )
    min_words: int = Field(default=3, ge=1, le=MANY)
    min_characters: int = Field(default=10, ge=1, le=MANY)
    max_characters: Count = 1000
    min_searches: int = Field(
        default=0,
        ge=0,
        le=MANY,
        description="Searches below which a proposal is rejected. ssp: 1, as the paper says; its published code has 2.",
    )
    repeated_queries: bool = Field(default=False, description="reject where a query was repeated")
    near_duplicates: float = Field(
        default=1.0, ge=0, le=1, description="reject beyond this likeness (Jaccard, MinHash) to others; 0: never"
    )


class VerificationConfig(Section):
    """Which questions are rejected because a reader's answers say so."""

    from_passages: bool = Field(default=False, description="not answered from the proposer's passages")
    passages: Literal["retrieved", "supporting"] = Field(
        default="retrieved", description="which of the proposer's: all that it found, or those that it wrote about"
    )
    noise_passages: int = Field(default=4, ge=0, le=1000, description="of other proposals, mixed in")
    noise: Literal["passages", "trajectories"] = Field(
        default="passages",
        description="What noise_passages counts: single passages that other proposals found, or other proposals, with "
        "all that each of them found (SSP's published code).",
    )
    closed_book: bool = Field(default=False, description="answered without any passage")
    ambiguity: int = Field(
        default=0, ge=0, le=1000, description="readings; another answer as frequent as the right one rejects. 0: off"
    )
    temperature: AnyTemperature = 0.0


class SelfPlayConfig(Section):
    """What the two self-play systems have in common."""

    proposals_per_step: int = Field(default=32, ge=1, le=100_000)
    label: Literal["proposer", "majority"] = Field(
        default="proposer", description="the right answer: the proposer's, or the solver's most frequent one"
    )
    right_from: float = Field(
        default=RIGHT_FROM,
        gt=0,
        le=1,
        description="Value of a graded reward.metric (f1, set_f1) from which an answer counts as right, for the pass "
        "rates, a reader without passages (one with passages must match exactly) and every proposer.difficulty but "
        "failure, which is 1 - the mean.",
    )
    evidence_weight: float = Field(
        default=0.0, ge=0, le=100, description="added to a solver's reward: share of the proposer's evidence it found"
    )
    distillation: float = Field(
        default=0.0, ge=0, le=100, description="pull towards the policy that sees the proposer's path (reverse KL)"
    )
    world: str = Field(default="", description="world.json of a generated world, whose oracle then judges questions")


class DrZeroConfig(Section):
    """The phases of Dr. Zero, in each of its iterations."""

    iterations: Count = 3
    proposer_steps: int = Field(default=5, ge=0, le=MANY)
    writing_steps: Count = 2
    solver_steps: Count = 15
    fresh_optimizer: bool = Field(default=True, description="for the solver, in every iteration")
    passages_per_writing_step: Count = 60
    questions_per_passage: int = Field(default=5, ge=1, le=1000, description="of which the best one is kept")
    writing_temperature: AnyTemperature | None = Field(default=None, description="none: the proposer's; 0: greedy")


class SSPConfig(Section):
    """What is special in Search Self-play."""

    answers: str = Field(default="", description="JSON lines of answers; none: mined from the corpus")
    train: Literal["both", "solver", "proposer"] = Field(default="both", description="which role learns")
    fill: Literal["dummy", "resample", "replay", "replay-reset"] = Field(
        default="replay-reset", description="what takes the place of rejected questions"
    )
    reset_every: Count = Field(default=10, description="steps after which replay-reset forgets its questions")
    resample_limit: int = Field(default=4, ge=1, le=100, description="times proposals_per_step, at most (resample)")


class EvaluationConfig(Section):
    """Held-out questions while training."""

    path: str = Field(default="", description="JSON lines of questions; none: no evaluation")
    index: str = Field(default="", description="their index, if it is not the training index")
    every: int = Field(default=10, ge=0, le=MANY)
    limit: Count | None = Field(default=None, description="use the first so many questions")
    temperature: AnyTemperature | None = Field(default=None, description="none: the rollouts' temperature; 0: greedy")


class RunConfig(Section):
    """The run as a whole."""

    system: Literal["search-r1", "dspo", "zerosearch", "deepresearcher", "dr-zero", "ssp"] = "search-r1"
    seed: int = Field(default=0, ge=-(2**63), lt=2**63)
    steps: Count = 120
    checkpoint_every: Count = 10
    keep_checkpoints: Count = 2
    pause_s: float = Field(
        default=10.0, ge=0, le=86_400, description="wait after a step with too many invalid rollouts; doubles"
    )
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
    proposer: ProposerConfig = ProposerConfig()
    filters: FiltersConfig = FiltersConfig()
    verification: VerificationConfig = VerificationConfig()
    selfplay: SelfPlayConfig = SelfPlayConfig()
    dr_zero: DrZeroConfig = DrZeroConfig()
    ssp: SSPConfig = SSPConfig()
    judge: JudgeConfig = JudgeConfig()
    simulator: SimulatorConfig = SimulatorConfig()
    zerosearch: ZeroSearchConfig = ZeroSearchConfig()
    web: WebConfig = WebConfig()
    browse: BrowseConfig = BrowseConfig()
    reader: ReaderConfig = ReaderConfig()
    asked: AskedConfig = AskedConfig()
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
    "zerosearch": {
        "reward.metric": "f1",  # exact match is what a policy is examined by; here long answers must not pay
        "algorithm.advantage": "raw",
        "algorithm.loss": "reinforce",
        "algorithm.aggregate": "sequence-sum",
        "search.top_k": 5,
    },
    "deepresearcher": {
        "reward.metric": "format_f1",
        "search.top_k": 10,
        "rollout.group_size": 16,
        "rollout.max_tool_calls": 10,
        "rollout.max_malformed": 0,  # such a turn breaks the format, which is worth -1
        "rollout.max_turns": 12,  # ten with calls, the one that asks for another, and the answer
        "rollout.final_answer": True,
        "rollout.deadline_s": 600.0,
    },
    "dr-zero": {"run.steps": MANY},  # its phases end it
    "ssp": {
        "policy.model": "tiny-reader",
        "proposer.ratio": [1.0, 1.0, 1.0],
        "proposer.difficulty": "failure",
        "proposer.format_weight": 0.0,
        "proposer.advantage": "raw",
        "proposer.aggregate": "sequence-sum",
        "filters.min_searches": 1,
        "filters.repeated_queries": True,
        "proposer.group_by": "task",
        "verification.from_passages": True,
        "verification.passages": "supporting",
    },
}


_ASKED = frozenset({"web.options", "web.api", "web.max_queries"})  # of the web
_SHOWN = frozenset({"browse.max_urls", "browse.only_found", "browse.page_words"})  # of it, to the policy


def may_differ_on_resume(config: Config) -> frozenset[str]:
    """What a resumed run may change: nothing of it reaches the weights of a given step."""
    of_all = frozenset({"run.checkpoint_every", "run.keep_checkpoints", "run.max_invalid", "run.pause_s"})
    of_all |= {f"asked.{key}" for key in AskedConfig.model_fields}  # training asks nobody else
    if config.run.system == "zerosearch":
        return of_all  # the noise depends on the number of steps
    sections = (("web", config.web), ("browse", config.browse))
    ways = {f"{name}.{key}" for name, section in sections for key in section.model_dump()}
    return of_all | {"run.steps"} | (ways - _ASKED - _SHOWN)  # how the web is reached


def load_config(
    file: Path | Sequence[Path] | None = None,
    *,
    system: str | None = None,
    fallback: str = "search-r1",
    options: Mapping[str, object] | None = None,
    sets: Iterable[str] = (),
) -> Config:
    """The config of a file or of several, the command's options (dotted keys; None means not given) and `key=value`
    texts, over the defaults of a system: the one that is named here, or else in a file, or else `fallback`.

    Raises ConfigError.
    """
    files = [file] if isinstance(file, Path) else list(file or ())
    given: Tree = {}
    for path in files:
        given = _merge(given, read_tree(path))
    source = " and ".join(map(str, files))
    system = _choose_system(system, given, source) or fallback
    tree: Tree = {}
    for key, value in SYSTEMS[system].items():
        _put(tree, key, value)
    tree = _merge(tree, given)
    _put(tree, "run.system", system)
    for key, value in (options or {}).items():
        if value is not None:
            _put(tree, key, value)
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--set got {text!r}, expected key=value, as in --set learner.learning_rate=1e-4.")
        _put(tree, key.strip(), _parse_value(value.strip()))
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        problems = "; ".join(_describe(problem["loc"], problem["type"], problem) for problem in error.errors())
        where = f" (from {source}, the options and --set)" if source else ""
        raise ConfigError(
            f"The settings{where} are not valid: {problems}. Every setting with its default is in "
            "the recipe search-r1/tiny (`evoseek recipes search-r1/tiny` prints it)."
        ) from error
    if config.run.system != system:
        raise ConfigError(
            f"run.system is set to {config.run.system!r}, but the other settings are those of {system!r}: each system "
            "has defaults of its own. Name the system as the command's argument, or in the config file."
        )
    return config


def _choose_system(named: str | None, tree: Tree, source: str) -> str | None:
    run = cast("object", tree.get("run"))
    stated = cast(Tree, run).get("system") if isinstance(run, dict) else None
    if named is not None and stated is not None and named != stated:
        raise ConfigError(
            f"The system {named!r} was asked for, but {source} holds settings for {stated!r} (run.system). Name the "
            "same system in both, or take run.system out of the file."
        )
    system = named or stated
    if system is not None and system not in tuple(SYSTEMS):  # what a file states may not even be a text
        close = get_close_matches(str(system), SYSTEMS, 1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise ConfigError(f"There is no system {system!r}.{hint} The systems are: {', '.join(SYSTEMS)}.")
    return cast("str | None", system)


def read_tree(file: Path) -> Tree:
    """A TOML config file, the config.json of a run, or a recipe by its name, as nested mappings. Raises ConfigError."""
    file = find_config(file)
    try:
        text = file.read_text(encoding="utf-8")
        tree = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
        if not isinstance(tree, dict):
            raise ValueError(f"it holds {type(tree).__name__}, not an object of settings")
        return cast(Tree, tree)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The config file {file} cannot be read: {error}. It must be a TOML file with tables "
            "such as [learner] (or the config.json of an earlier run)."
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
