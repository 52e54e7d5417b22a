"""What is injected into evoseek, as structural types: implement the methods and pass the object in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from evoseek.types import (
    Action,
    Completion,
    Message,
    Outcome,
    Page,
    Passage,
    Question,
    SampleRequest,
    StopConditions,
    ToolCall,
    ToolResult,
    Trajectory,
)


@runtime_checkable
class Sampler(Protocol):
    """Tokens in, tokens out. One call is one turn of one trajectory; concurrent calls are batched."""

    @property
    def policy_version(self) -> int:
        """The version of the weights that are sampled with: the step that made them."""
        ...

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion, within the request's limits of tokens and seconds. Raises SamplerError."""
        ...

    def release(self, trajectory_id: str) -> None:
        """Say that a trajectory has ended, so that whatever is kept for it can go. Unknown ids are ignored."""
        ...

    def update_weights(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """Sample with new weights from now on, as the policy of this version, which every completion then names.

        `weights` are tensors by their names in the model; None says that the sampler's model itself was changed in
        place, or not at all. No completion may be under way. Raises SamplerError if the weights cannot be taken.
        """
        ...


class Renderer(Protocol):
    """Messages and text to token ids and back, for one model and one format."""

    @property
    def stop(self) -> StopConditions:
        """Where a completion ends."""
        ...

    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Ids of the prompt, up to where the model begins to write."""
        ...

    def parse(self, token_ids: Sequence[int]) -> Action:
        """The action in what the model wrote. Never raises: what cannot be read has `problem` set."""
        ...

    def render_observation(self, texts: Sequence[str], after: Sequence[int] = ()) -> tuple[int, ...]:
        """Ids that follow a completion with tool calls: the calls' result texts, up to where the model goes on.

        `after` is the completion's ids, for formats that close a turn which was cut before its closing token.
        """
        ...

    def render_notice(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """Ids that follow a completion without a call: what the model is told, up to where it writes again.

        Template text in `text` is marked (`policy.encoding.trusted`). `after` is the completion's ids. Needed only
        where rollouts go on after malformed turns.
        """
        ...


class Chat(Protocol):
    """Messages to text: judges, simulators, reading agents and models that are asked use nothing else."""

    @property
    def name(self) -> str:
        """The model's name, as it was given."""
        ...

    @property
    def is_local(self) -> bool:
        """True if a reply never waits for anything outside this process (keeps runs reproducible bit for bit)."""
        ...

    async def chat(self, messages: Sequence[Message], *, key: str, form: Mapping[str, object] | None = None) -> str:
        """The reply's text, whole. `key` says what it is for: its random numbers follow from that.

        `form` is a JSON schema that the reply should have, for models that can be held to one; others are sent the
        messages alone. Raises ToolError if there is no reply, or only the beginning of one.
        """
        ...


@runtime_checkable
class SearchEngine(Protocol):
    """The one signature of every engine."""

    @property
    def is_local(self) -> bool:
        """True if `search` never waits for anything outside this process (keeps runs reproducible bit for bit)."""
        ...

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """For each query at most k passages, best first. Raises ToolError."""
        ...


@runtime_checkable
class PassageStore(Protocol):
    """A corpus cut into passages, which can be taken by their ids and listed."""

    def __len__(self) -> int:
        """Number of passages."""
        ...

    def get(self, passage_id: str) -> Passage:
        """The passage with this id. Raises DataError if there is none."""
        ...

    def passages(self) -> Iterable[Passage]:
        """All passages, in the order in which they were added."""
        ...

    def find(self, query: str, k: int) -> list[Passage]:
        """At most k passages for a query, best first."""
        ...


@runtime_checkable
class QuestionEngine(Protocol):
    """An engine whose passages depend on what they are searched for: it is bound first, and then is a plain engine."""

    def for_question(self, question: Question, trajectory_id: str) -> SearchEngine:
        """The engine of one rollout of a question. Random numbers follow from the rollout and the query's number."""
        ...


class Fetcher(Protocol):
    """Opens web pages."""

    @property
    def is_local(self) -> bool:
        """True if `fetch` never waits for anything outside this process."""
        ...

    async def fetch(self, url: str) -> Page:
        """The page at an address. Raises PageError for one that nobody could read, ToolError if fetching failed."""
        ...


class PageReader(Protocol):
    """Takes from a page what matters."""

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """What of the page matters for the task; "" if nothing does. `key` says what it is for: random numbers follow
        from that. Raises ToolError."""
        ...


class Tool(Protocol):
    """Something that a policy can call."""

    @property
    def name(self) -> str:
        """Name by which the model calls it."""
        ...

    @property
    def schema(self) -> Mapping[str, object]:
        """JSON schema of the function, as chat templates take it."""
        ...

    def for_question(self, question: Question, trajectory_id: str) -> Tool:
        """The tool as one rollout of a question has it: itself, unless what it does depends on them."""
        ...

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Run the call. Raises ToolError when the tool failed (not when the model's arguments are wrong: that is
        a result whose text says so)."""
        ...


class Environment(Protocol):
    """A task for one role: how it is asked, which tools it has. The rollout loop is the same for all."""

    @property
    def role(self) -> str:
        """`solver`, `proposer`, ..."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools by name."""
        ...

    def messages(self, question: Question) -> list[Message]:
        """The prompt's messages."""
        ...

    def malformed(self, problem: str) -> str:
        """What the model is told after a turn with neither a call nor an answer: a text in which the template's own
        words are marked. `problem` says what is wrong with the turn. Needed only where rollouts go on after such turns.
        """
        ...


class RewardFn(Protocol):
    """Scores a finished trajectory."""

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Scored, or Invalid if the reward itself could not be had. Failure stop reasons never reach it."""
        ...


class MetricSink(Protocol):
    """Takes named numbers of a step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a step."""
        ...
