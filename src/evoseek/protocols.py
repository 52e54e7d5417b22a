"""Structural types for objects that you pass to evoseek: implement the methods and pass the object in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from evoseek.types import (
    Action,
    Completion,
    ContextTurn,
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
    TrajectoryGroup,
)


@runtime_checkable
class Sampler(Protocol):
    """Tokens in, tokens out. One call is one turn of one trajectory; concurrent calls are batched."""

    @property
    def policy_version(self) -> int:
        """The version of the weights used for sampling: the step that produced them."""
        ...

    async def sample(self, request: SampleRequest) -> Completion:
        """Sample one completion, within the request's limits of tokens and seconds. Raises SamplerError."""
        ...

    def release(self, trajectory_id: str) -> None:
        """Free everything that is kept for a trajectory that has ended. Unknown ids are ignored."""
        ...

    def update_weights(self, version: int, weights: Mapping[str, Any] | None = None) -> None:
        """Sample with new weights from now on. Completions of turns that begin later carry this version.

        `weights` are tensors by their names in the model. None means that the sampler's own model was changed in place,
        or not at all. Turns are in progress only with rollout.max_staleness: they end with the old weights or continue
        with the new ones. Each token's logprob belongs to the weights that wrote the token. Raises SamplerError if the
        weights cannot be used.
        """
        ...


class Renderer(Protocol):
    """Converts messages and text to token ids and back, for one model and one format."""

    @property
    def stop(self) -> StopConditions:
        """Where a completion ends."""
        ...

    def render_prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids of the prompt, up to where the model begins to write."""
        ...

    def parse(self, token_ids: Sequence[int]) -> Action:
        """Parse the model's output into an action. Never raises: if parsing fails, `problem` is set."""
        ...

    def render_observation(self, texts: Sequence[str], after: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the ids after a completion with tool calls: the results' texts, up to where the model continues.

        `after` is the completion's ids. Some formats use them to close a turn that was cut before its closing token.
        """
        ...

    def render_notice(self, text: str, after: Sequence[int]) -> tuple[int, ...]:
        """Return the ids after a completion without a call: a notice to the model, up to where it continues.

        Template text in `text` is marked (`renderers.encoding.trusted`). `after` is the completion's ids. Needed only
        if rollouts continue after malformed turns.
        """
        ...

    def put_off(self, token_ids: Sequence[int]) -> tuple[int, ...] | None:
        """Return the ids of a turn that ended with an answer, up to the answer, and the beginning of a search in its
        place; None if the format has none. Needed only for `rollout.put_off`."""
        ...

    def render_text(self, text: str) -> tuple[int, ...]:
        """Return the ids of a turn that consists of this text. Needed only for `rollout.put_off`."""
        ...

    def render_turn(self, thought: str, ending: ToolCall | str, question: str = "") -> tuple[int, ...]:
        """Return the ids of a turn as the model would write it: a thought, a proposed question ("" for none), then a
        call, or the text of an answer.

        Needed only for demonstrations. Raises PolicyError if `parse` would not read the same turn back.
        """
        ...


class Chat(Protocol):
    """Messages to text: all that judges, simulators, page readers and answering chat models need."""

    @property
    def name(self) -> str:
        """The model's name, as given by the user."""
        ...

    @property
    def is_local(self) -> bool:
        """True if a reply never waits for anything outside this process (keeps runs reproducible bit for bit)."""
        ...

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        key: str,
        form: Mapping[str, object] | None = None,
        stop: Sequence[str] = (),
    ) -> str:
        """Return the whole text of the reply. `key` identifies the purpose of the call and seeds its random numbers.

        `form` is a JSON schema for the reply, for models that support constrained output; others receive only the
        messages. `stop` are closing tags at which the reply may end, tag included; a model that cannot stop there
        keeps writing. Raises ToolError if there is no reply, CutReplyError (with the text so far) for a cut one.
        """
        ...


@runtime_checkable
class SearchEngine(Protocol):
    """A search engine; all engines have this signature."""

    @property
    def is_local(self) -> bool:
        """True if `search` never waits for anything outside this process (keeps runs reproducible bit for bit)."""
        ...

    async def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return at most k passages for each query, best first. Raises ToolError."""
        ...


@runtime_checkable
class PassageStore(Protocol):
    """A corpus cut into passages, to look up by id and to list."""

    def __len__(self) -> int:
        """Number of passages."""
        ...

    def get(self, passage_id: str) -> Passage:
        """Return the passage with this id. Raises DataError if there is none."""
        ...

    def passages(self) -> Iterable[Passage]:
        """Return all passages, in the order in which they were added."""
        ...

    def find(self, query: str, k: int) -> list[Passage]:
        """Return at most k passages for a query, best first."""
        ...


@runtime_checkable
class WordCounts(Protocol):
    """An index that knows how many of its passages contain a word. The check of evidence uses it to detect names."""

    def __len__(self) -> int:
        """Number of passages."""
        ...

    def passages_with(self, word: str) -> int:
        """Return the number of passages that contain a word."""
        ...


@runtime_checkable
class QuestionEngine(Protocol):
    """An engine whose passages depend on the question. Bind it to a question to get a plain engine."""

    def for_question(self, question: Question, trajectory_id: str) -> SearchEngine:
        """Return the engine for one rollout of a question. Random numbers are derived from the rollout and the number
        of the query."""
        ...


class Fetcher(Protocol):
    """Opens web pages."""

    @property
    def is_local(self) -> bool:
        """True if `fetch` never waits for anything outside this process."""
        ...

    async def fetch(self, url: str) -> Page:
        """Fetch the page at an address. Raises PageError if no client could read it, ToolError if fetching failed."""
        ...


class PageReader(Protocol):
    """Extracts what matters for a task from a page."""

    async def read(self, page: Page, *, task: str, key: str) -> str:
        """Return the content of the page that matters for the task; "" if nothing does. `key` identifies the purpose of
        the call; random numbers are derived from it. Raises ToolError."""
        ...


class WebAccess(Protocol):
    """The web, as the tools of a rollout see it."""

    @property
    def engine(self) -> SearchEngine:
        """The web's search engine."""
        ...

    @property
    def fetcher(self) -> Fetcher:
        """Fetches pages."""
        ...

    @property
    def reader(self) -> PageReader:
        """Reads pages."""
        ...


class Tool(Protocol):
    """A tool that a policy can call."""

    @property
    def name(self) -> str:
        """Name by which the model calls it."""
        ...

    @property
    def schema(self) -> Mapping[str, object]:
        """JSON schema of the function, as chat templates take it."""
        ...

    def for_question(self, question: Question, trajectory_id: str) -> Tool:
        """Return the tool for one rollout of a question: itself, unless its behaviour depends on the question or the
        rollout."""
        ...

    async def __call__(self, call: ToolCall) -> ToolResult:
        """Run the call. Raises ToolError if the tool failed. If the model's arguments are wrong, return a result whose
        text says so."""
        ...


@runtime_checkable
class ReasonedTool(Protocol):
    """A tool whose results depend on what the model wrote before the call. Bind it to that text first."""

    def after(self, reasoning: str) -> Tool:
        """Return the tool for the model's next call. `reasoning` is all it wrote so far, this turn included."""
        ...


@runtime_checkable
class NumberedTool(Protocol):
    """A tool that numbers the passages of a result."""

    def numbered(self, result: ToolResult, first: int) -> ToolResult:
        """Return the result with its passages numbered from `first` in the text."""
        ...


class Environment(Protocol):
    """A task for one role: its prompt and its tools. The rollout loop is the same for all environments."""

    @property
    def role(self) -> str:
        """`solver`, `proposer`, ..."""
        ...

    @property
    def tools(self) -> Mapping[str, Tool]:
        """Tools by name."""
        ...

    def messages(self, question: Question) -> list[Message]:
        """Return the prompt's messages."""
        ...

    def malformed(self, problem: str) -> str:
        """Return the notice to the model after a turn with neither a call nor an answer: a text in which template text
        is marked. `problem` says what is wrong with the turn. Needed only if rollouts continue after such turns."""
        ...


@runtime_checkable
class OpeningEnvironment(Environment, Protocol):
    """An environment that makes calls before the first turn and puts their results in the prompt. A turn without a call
    is the answer. `messages` gives the prompt without any results, which is the shortest."""

    def opening(self, question: Question) -> Sequence[ToolCall]:
        """Return the calls to make before the first turn. They do not count as the policy's."""
        ...

    def opened(self, question: Question, results: Sequence[ToolResult]) -> list[Message]:
        """Return the prompt's messages with the results of these calls."""
        ...


@runtime_checkable
class RewritingEnvironment(Environment, Protocol):
    """An environment that rewrites a context without room for another turn. Each rewriting begins a branch of the
    attempt (`Trajectory.branches`)."""

    def rewritten(self, turns: Sequence[ContextTurn], room: int) -> Sequence[ContextTurn]:
        """Return what stands after the prompt from now on: turns in their order, also with less `shown`, of at most
        `room` tokens. The last one should stay, since the policy has not read its results."""
        ...


class RewardFn(Protocol):
    """Scores a finished trajectory: 1 if the answer is right, 0 if it is wrong, or a value between (from 0.7 on it
    counts as right). A reward that can be negative has an attribute `lowest`, its lowest value. In an evaluation, an
    Invalid rollout counts as `lowest`. Self-play trains only on rewards from 0 to 1."""

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        """Return Scored, or Invalid if the reward could not be computed. Never called for trajectories that ended with
        a failure."""
        ...


class GroupLabel(Protocol):
    """Scores a complete group against an answer other than its question's."""

    async def __call__(self, group: TrajectoryGroup, reward: RewardFn) -> TrajectoryGroup:
        """Return the group with new outcomes, computed by `reward`."""
        ...


class MetricSink(Protocol):
    """Receives the named metrics of every step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of a step."""
        ...
