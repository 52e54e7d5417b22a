"""Settings of every system. A system's own `Settings` adds its tables to these and changes defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, SerializeAsAny, model_validator

from evoseek.chat.settings import AnswererSettings, JudgeSettings, SupportSettings
from evoseek.config.sections import (
    MANY,
    AnyTemperature,
    Chosen,
    Count,
    Needs,
    PartSettings,
    Section,
    is_given,
    lookup,
    part,
    parts,
    with_setting,
)
from evoseek.credit import CreditPart, credits_with_critic
from evoseek.learner.settings import CriticSettings, LearnerPart
from evoseek.loss.settings import AlgorithmSettings, LossPart
from evoseek.models.settings import LoraSettings, PolicySettings, SamplerPart
from evoseek.models.source import adapter_rank, longest_context
from evoseek.questions.writers.base import QuestionWriterPart
from evoseek.reward.functions import RewardPart
from evoseek.rollout.settings import AgentPart, EnvironmentPart, RolloutSettings, ToolPart
from evoseek.search.settings import SearchPart


class TrackerSettings(PartSettings):
    """A tracker that receives the metrics of every step, in addition to metrics.jsonl."""


TrackerPart = Annotated[SerializeAsAny[TrackerSettings], Chosen("tracker", TrackerSettings)]

Value = str | int | float | bool

PUT_OFF = (
    "rollout.put_off is {}, but putting answers off needs the embedded sampler (sampler.name = torch) and the format "
    "tags (policy.format). Set these, or leave rollout.put_off out."
)
TOO_LONG = (
    "rollout.max_total_tokens is {0}, but the model {1} was made for at most {2} tokens. Set rollout.max_total_tokens "
    "to {2} or less."
)


class StepQuestionSettings(Section):
    """How many questions a step trains on."""

    per_step: int = Field(default=20, ge=1, le=100_000, description="Number of questions in a step.")


class QuestionSettings(StepQuestionSettings):
    """The training questions."""

    in_stage = "per_step where balance_by shares"
    path: str = Field(default="", description="File of questions: JSON lines with question and golden_answers.")
    feedback: str = Field(
        default="",
        description="File of conversations with a verdict (`evoseek feedback`). When the run begins, those with a "
        "known right answer are added to the questions of path. Default: feedback.jsonl of the project.",
    )
    where: dict[str, Value | tuple[Value, ...]] = Field(
        default={},
        description="Ask only questions whose metadata has these values, such as {hops = 2}; a list allows each of its "
        "values. Default: all questions.",
    )
    balance_by: str = Field(
        default="",
        description="Metadata field, such as hops, whose values have fixed shares in every step.",
    )
    shares: dict[str, Annotated[float, Field(gt=0, le=MANY)]] = Field(
        default={},
        description="Shares of the values of questions.balance_by, such as {1 = 1, 2 = 2}; questions with other values "
        "are not asked. Default: equal shares.",
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (Needs("shares", "balance_by"),)


class ColdStartSettings(Section):
    """The cold start: before training, the policy learns from questions written about the documents, without labels."""

    questions: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Maximum number of questions that are written about the documents of the index. The policy learns "
        "960 demonstrations of them (fewer are repeated up to four times; none in the environment search_first), then "
        "trains on all but the held-out questions. 0: no cold start.",
    )
    writer: QuestionWriterPart = part("rules-en")

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        """Return that a writer has an effect only if questions are wanted."""
        return (Needs("writer.*", "questions"),)


class StageSettings(Section):
    """A stage of a run: a name, an end, and tables of settings that differ from the run's."""

    model_config = ConfigDict(extra="allow")  # the tables
    name: str = Field(min_length=1, description="Name of the stage.")
    steps: Count | None = Field(default=None, description="Number of steps after which the stage ends.")
    until: str = Field(default="", description="Condition that ends the stage: a metric, > >= < or <=, and a number.")
    over: Count = Field(default=3, description="Number of steps with the metric whose mean is compared.")

    @property
    def own(self) -> dict[str, Any]:
        """The settings that differ from the run's, as nested mappings."""
        return dict(self.model_extra or {})

    def problems(self) -> Iterator[str]:
        if self.over != type(self).model_fields["over"].default and not self.until:  # a saved run states the default
            yield f"The stage {self.name} has over = {self.over}, but no until to compare. Leave over out."
        if self.until and self.steps is not None and self.steps < self.over:
            yield (
                f"The stage {self.name} ends after {self.steps} steps, before the mean over {self.over} (over) is "
                "compared. Lower over, or raise steps."
            )


class EvaluationSettings(Section):
    """Evaluation on held-out questions during training."""

    on_resume = "reviewed"
    path: str = Field(default="", description="File of held-out questions. Default: no evaluation.")
    reviewed: str = Field(
        default="",
        description="File of questions that a person judged right (`evoseek review`). Training leaves them out; "
        "`evoseek eval` scores them unless path is set. Default: reviewed.jsonl of the project.",
    )
    index: str = Field(default="", description="Index that is searched for held-out questions. Default: search.index.")
    every: int = Field(
        default=10,
        ge=0,
        le=MANY,
        description="Number of steps between evaluations; 0 evaluates only before the first and after the last step.",
    )
    limit: Count | None = Field(
        default=None, description="Maximum number of held-out questions, from the first. Default: all."
    )
    temperature: AnyTemperature | None = Field(
        default=None, description="Sampling temperature of evaluations; 0 is greedy. Default: rollout.temperature."
    )

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        return (Needs("index every limit temperature", "path"),)


class RunSettings(Section):
    """The run as a whole."""

    on_resume = "steps max_minutes checkpoint_every keep_checkpoints max_invalid pause_s record_samples"
    system: str = Field(
        default="search-r1",
        description="System: a built-in name, or package.module:Name.",
    )
    seed: int = Field(default=0, ge=-(2**63), lt=2**63, description="Seed of all random numbers.")
    steps: Count = Field(default=120, description="Number of training steps.")
    max_minutes: float | None = Field(
        default=None,
        gt=0,
        description="Maximum minutes of training steps, those before a resume included; the run then stops as by "
        "Ctrl-C. Default: no limit.",
    )
    checkpoint_every: Count = Field(default=10, description="Number of steps between checkpoints.")
    keep_checkpoints: Count = Field(default=2, description="Number of checkpoints that are kept.")
    record_samples: Literal["no", "advantages", "tokens"] = Field(
        default="advantages",
        description="What samples.jsonl records of every trained rollout: nothing (no), its advantages, or also the "
        "learner's logprobs of its tokens, which costs a forward pass (tokens).",
    )
    pause_s: float = Field(
        default=10.0,
        ge=0,
        le=86_400,
        description="Seconds to wait after a failed step (max_invalid); doubles after a second one.",
    )
    max_invalid: float = Field(
        default=0.2,  # moves the mean reward by some 0.05: docs/algorithms.md, "Bias by failures"
        ge=0,
        le=1,
        description="Share of invalid rollouts, retries included, above which a step fails unless chance explains it. "
        "A failed step trains on nothing; three in a row end the run.",
    )


_OF_OWN_LOOP = "environment.* tools rollout.max_tool_calls rollout.max_malformed rollout.final_answer"


class TrainingSettings(Section):
    """Settings that every system has. The defaults suit the tiny policy."""

    on_resume = "answerer.* support.* trackers"
    is_supervised: ClassVar[bool] = False
    """Whether the policy learns from demonstrations instead of rewards."""
    searches_engine: ClassVar[bool] = True
    """Whether training searches the engine of [search] (else: a simulator, or the web)."""
    has_engine: ClassVar[bool] = True
    """Whether asking and evaluating a policy searches an engine (else: the web)."""
    has_critic: ClassVar[bool] = True
    """Whether a credit may ask for a critic."""
    run: RunSettings = RunSettings()
    policy: PolicySettings = PolicySettings()
    lora: LoraSettings = LoraSettings()
    sampler: SamplerPart = part("torch")
    search: SearchPart = part("auto")
    rollout: RolloutSettings = RolloutSettings()
    agent: AgentPart = part("loop")
    environment: EnvironmentPart = part("solver")
    tools: tuple[ToolPart, ...] = parts("search")
    reward: RewardPart = part("exact_match")
    credit: CreditPart = part("group")
    loss: LossPart = part("clipped")
    algorithm: AlgorithmSettings = AlgorithmSettings()
    learner: LearnerPart = part("torch")
    critic: CriticSettings = CriticSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    judge: JudgeSettings = JudgeSettings()
    answerer: AnswererSettings = AnswererSettings()
    support: SupportSettings = SupportSettings()
    trackers: tuple[TrackerPart, ...] = ()

    @model_validator(mode="after")
    def _correct_staleness(self) -> Self:
        if self.max_staleness == 0 or is_given(self, "algorithm.importance"):
            return self
        return with_setting(self, "algorithm.importance", "truncate")

    @classmethod
    def effects(cls) -> tuple[Needs, ...]:
        instead = "An agent has prompts, tools and a loop of its own."
        return (
            Needs("judge.*", "reward.name", ("judge",)),
            Needs("critic.*", "credit.name", credits_with_critic()),
            Needs(_OF_OWN_LOOP, "agent.name", ("loop",), instead, own_has_none=True),
        )

    def problems(self) -> Iterator[str]:
        yield from self.learner.problems_with(self)
        if self.search.name == "remote" and self.evaluation.index:
            yield (
                f"evaluation.index is {self.evaluation.index}, but search.name is remote, which opens no "
                "local index. Leave evaluation.index out."
            )
        if self.loss.name == "reinforce":
            yield from self.off_policy("loss.name is reinforce", "loss.name to clipped")
        put_off = lookup(self, "rollout.put_off")
        if put_off and self.runs_agent:
            yield "rollout.put_off needs the package's own turn loop. Leave it out, or set agent.name to loop."
        own = self.rollout
        if put_off and min(own.max_turns - 1, own.max_tool_calls) < 1 and not self.environment.opens:
            yield (
                f"rollout.put_off is {put_off}, but rollout.max_turns = {own.max_turns} and rollout.max_tool_calls = "
                f"{own.max_tool_calls} leave no search to replace an answer. Leave rollout.put_off out, or allow 2 "
                "turns and a call."
            )

    def problems_of_run(self, processes: int) -> Iterator[str]:
        """Yield what prevents training in `processes` processes, beyond `problems`."""
        yield from self.dtype_problems(processes)
        if self.lora.rank and adapter_rank(self.policy.model):
            yield (
                f"lora.rank is {self.lora.rank}, which asks for a new adapter, but {self.policy.model} is one already. "
                "Leave lora.rank at 0 to train it further, or merge it (evoseek export) and give the merged model."
            )
        if self.policies > 1 and processes > 1 and self.sampler.name != "torch":
            yield (
                f"{self.run.system} trains two policies in {processes} processes, which needs the sampler torch, but "
                f"sampler.name is {self.sampler.name}. Set sampler.name to torch, or train in one process."
            )
        if self.max_staleness and processes > 1:
            yield (
                f"rollout.max_staleness is {self.max_staleness}, but {processes} processes exchange "
                "rollouts and gradients in a fixed order, which rollouts during an update would break. Train in one "
                "process, or set rollout.max_staleness to 0."
            )
        if (put_off := lookup(self, "rollout.put_off")) and self.sampler.name != "torch":
            yield PUT_OFF.format(put_off)
        most, longest = self.rollout.max_total_tokens, longest_context(self.policy.model)
        rolls_out = not self.is_supervised or self.evaluation.path
        if rolls_out and longest is not None and most > longest:
            yield TOO_LONG.format(most, self.policy.model, longest)
        yield from self.sampler.problems_with(self, processes)

    def dtype_problems(self, processes: int) -> Iterator[str]:
        dtype = self.policy.dtype
        if dtype == "float16" and not self.adapter_rank:
            yield (
                "policy.dtype is float16, in which small gradients become 0. Set policy.dtype to "
                "bfloat16 (trained through float32 master weights) or float32; or train an adapter (lora.rank above "
                "0), which is always in float32."
            )
        if dtype != "float32" and processes > 1:
            yield (
                f"policy.dtype is {dtype}, but {processes} processes share weights in float32 only, the type of "
                "adapters and master weights. Set policy.dtype to float32, and learner.bf16 to true to compute in "
                "bfloat16; or train in one process."
            )

    def off_policy(self, loss: str, other: str) -> Iterator[str]:
        """Yield what is wrong with a plain policy gradient if an older policy wrote the tokens. `other` is a remedy."""
        why = f"{loss}, whose gradient is right only for tokens of the current policy, but"
        if (batches := self.algorithm.mini_batches) > 1:
            yield f"{why} algorithm.mini_batches is {batches}. Set it to 1, or {other}."
        if self.max_staleness and self.algorithm.importance == "none":
            yield (
                f"{why} with rollout.max_staleness = {self.max_staleness} older policies write them, and "
                f"algorithm.importance is none. Set algorithm.importance to truncate, or {other}."
            )

    @property
    def policies(self) -> int:
        """Number of policies that are trained, each with all of its weights or an adapter."""
        return 1

    @property
    def served_dtype(self) -> str:
        """The data type in which the sampler's servers compute, the same as the learner's."""
        return "bfloat16" if self.learner.bf16 else self.policy.dtype

    @property
    def max_staleness(self) -> int:
        return int(lookup(self, "rollout.max_staleness") or 0)

    @property
    def planned_steps(self) -> int:
        return self.run.steps

    @property
    def demonstrates(self) -> bool:
        """Whether a cold start shows demonstrations: not if each question is searched before the first turn."""
        return bool(lookup(self, "cold_start.questions")) and not self.environment.opens

    @property
    def learnt_temperature(self) -> float:
        """The temperature of the distribution that is trained: the rollouts', or 1 for demonstrations."""
        return 1.0 if self.is_supervised else self.rollout.temperature

    @property
    def trained(self) -> str:
        return f"an adapter of rank {rank}" if (rank := self.adapter_rank) else "all weights"

    @property
    def adapter_rank(self) -> int:
        """The rank of the trained adapter, new or trained before; 0: all weights are trained."""
        return self.lora.rank or adapter_rank(self.policy.model)

    @property
    def runs_agent(self) -> bool:
        """Whether an agent of the user's calls the policy, with tools of its own, instead of the turn loop."""
        return self.agent.name != "loop"

    @property
    def searches_index(self) -> bool:
        return self.searches_engine and self.search.reads_index and not self.runs_agent

    @property
    def examines_index(self) -> bool:
        """Whether held-out questions are answered by searching an index."""
        return self.has_engine and self.search.reads_index and not self.runs_agent

    @property
    def held_out_temperature(self) -> float:
        """The temperature for held-out questions: the rollouts' unless another is set."""
        chosen = self.evaluation.temperature
        return self.rollout.temperature if chosen is None else chosen
