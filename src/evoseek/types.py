"""The records that flow through evoseek. Standard library only.

A worked example, one trajectory of a solver that searches once (ids are made up):

    question   Question(id="q1", text="what is Kalo 's mayor ?", golden_answers=("Meri",))
    segments   prompt       [5, 9, 11, 12, 13]            the rendered question
               action       [20, 5, 9, 21]                "<search> Kalo 's mayor </search>"   <- trained
               observation  [30, 5, 9, 11, 14, 15, 31]    "<information> ... </information>"
               action       [40, 15, 41]                  "<answer> Meri </answer>"            <- trained
    token_ids  the four lists one after the other: exactly what the sampler was given and gave
    loss_mask  True on the seven action tokens only; rollout_logprobs is 0.0 elsewhere
    stop       StopReason.ANSWERED, answer="Meri"
    outcome    Scored(reward=1.0, parts={"exact_match": 1.0})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from textwrap import shorten
from typing import Literal, cast

SHORT_ANSWER = 10
"""Words of a short answer at most."""
TERM = 7
"""The level of a heading that is a term of a list of definitions: lower than those of sections, 1 to 6."""
_LONGEST_HEADING, _SIGNS = 100, 4  # characters of it in a label, and of signs before it in a text


@dataclass(frozen=True, slots=True)
class Question:
    """A question with every accepted answer. `metadata` may hold `hops`, `kind`, `source`, `answerable`, which is False
    for a question that the documents do not answer, `hidden` and `support`. A proposer's question is a `task`."""

    id: str
    text: str
    golden_answers: tuple[str, ...]
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    task: ProposerTask | None = None

    @property
    def is_answerable(self) -> bool:
        """False if the documents are known not to answer it."""
        return self.metadata.get("answerable") is not False

    @property
    def hidden(self) -> frozenset[str]:
        """Ids of the documents that no search for this question finds, as if they were not in the index."""
        return frozenset(cast("Iterable[str]", self.metadata.get("hidden", ())))

    @property
    def support(self) -> tuple[str, ...]:
        """The documents' sentences that support the answer, as they stand there."""
        return tuple(cast("Iterable[str]", self.metadata.get("support", ())))

    @property
    def is_long(self) -> bool:
        """Whether its answer is one or more sentences: it has support, or every golden answer has more than ten
        words."""
        lengths = [len(answer.split()) for answer in self.golden_answers]
        return bool(self.support) or min(lengths, default=0) > SHORT_ANSWER


@dataclass(frozen=True, slots=True)
class Mark:
    """The page (from 1; of slides the slide) and the heading that a document's text is under from `start` on.

    `level` is that of a heading whose line begins at `start` (1: the highest). 0: no heading line, but a new page, or a
    new row of a table (`heading` then names the row).
    """

    start: int
    page: int | None = None
    heading: str | None = None
    level: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A source text as read from the user's corpus.

    `file` is the path within the corpus of the file that it was read from, `marks` (in the order of their starts) its
    pages and headings, where the format has them.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    file: str | None = None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document: `text` ends with the document's text[start:end], and has nothing before that but the
    column headings of a table that it begins within. `score` is set by a search engine.

    `file`, `page` and `heading` say where all of it stands, so that a reader finds it again: the path within the
    corpus, the page of a PDF or slide of a presentation (from 1), and the nearest heading, or the row of a table. None
    if the source has none. Of the three a policy sees the heading (`label`). `copies` are other passages with
    the same text that the same search found.
    """

    id: str
    document_id: str
    title: str
    text: str
    start: int = 0
    end: int = 0
    score: float | None = None
    file: str | None = None
    page: int | None = None
    heading: str | None = None
    copies: tuple[Passage, ...] = field(default=(), compare=False)

    @property
    def label(self) -> str:
        """What it is under: the title and the heading, at most 100 characters of it, without one that names a row or
        that the title or the beginning of the text says."""
        heading = self.heading or ""
        is_said = heading in self.title or heading in self.text[: len(heading) + _SIGNS]
        shown = "" if is_said or self.is_row else shorten(heading, _LONGEST_HEADING, placeholder=" ...")
        return ": ".join(filter(None, (self.title, shown)))

    @property
    def own_text(self) -> str:
        """The document's text[start:end], without column headings that are repeated."""
        return self.text[-(self.end - self.start) :] if self.end > self.start else self.text

    @property
    def is_row(self) -> bool:
        """Whether it is a row of a table, which its heading names."""
        return bool(self.heading) and self.document_id.endswith(f"/{self.heading}")

    @property
    def contents(self) -> str:
        """The field's common shape: title (and heading), newline, text."""
        return f"{self.label}\n{self.text}"

    @staticmethod
    def parse_contents(contents: str) -> tuple[str, str]:
        """Title and text of this shape. One line alone is a text without a title."""
        title, _, text = contents.partition("\n")
        title = title.strip()
        if not text:
            return "", title
        is_quoted = len(title) > 1 and title[0] == title[-1] == '"'  # as in Search-R1's corpus
        return title[1:-1] if is_quoted else title, text

    @property
    def place(self) -> dict[str, object]:
        """Where to find it, as JSON values: the file, with page and heading if there are any. Empty for a passage that
        was not read from a file."""
        if self.file is None:
            return {}
        fields = {"file": self.file, "page": self.page, "heading": self.heading}
        return {key: value for key, value in fields.items() if value is not None}

    @property
    def citation(self) -> str:
        """Where to find it, as in `setup.pdf, page 3` or `setup.md, "Installing"`; its document without a file."""
        heading = f'"{self.heading}"' if self.heading else ""
        return ", ".join(filter(None, (self.file or self.document_id, self.page_name, heading)))

    @property
    def documents(self) -> frozenset[str]:
        """The ids of the documents in which the text stands."""
        return frozenset((self.document_id, *(copy.document_id for copy in self.copies)))

    @property
    def page_name(self) -> str:
        """As in `page 3`; empty without a page."""
        return "" if self.page is None else f"page {self.page}"


@dataclass(frozen=True, slots=True)
class ProposerTask:
    """What a proposer makes its question from: a passage, or without one the answer that is the task's text.

    `requested` is the number of hops or searches (0: the proposer's choice). A passage that is not `shown` is not part
    of what the proposer saw. `id` is the same for all copies of a task ("": it was not copied from any).
    """

    requested: int
    passage: Passage | None = None
    shown: bool = True
    id: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A web page that was opened: its address after redirects, and its text without markup."""

    url: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call parsed from the model's output."""

    name: str
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message, before rendering."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()


class CountedText(str):
    """The text of a reply, with the numbers of tokens of prompt and reply that its server counted."""

    tokens: tuple[int, int]

    @classmethod
    def of(cls, text: str, tokens: tuple[int, int]) -> CountedText:
        counted = cls(text)
        counted.tokens = tokens
        return counted


@dataclass(frozen=True, slots=True)
class Action:
    """A parsed completion: tool calls, an answer, or neither (`problem` then says why, in words).

    `question` is set if a proposer stated the question that it wrote.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    question: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class StopConditions:
    """Where a completion ends: after a string or after a token id. Either is kept in the completion."""

    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One turn to sample. `token_ids` is the whole context so far; a sampler may reuse the keys and values that it
    already holds for `trajectory_id`. The random stream is a function of (`seed`, `trajectory_id`, `turn`) and of
    whether `begins` is given, alone. The turn ends after the token with which the sampler has worked on it for
    `max_seconds`. It begins with the ids of `begins`, whatever the policy would have drawn; their logprobs are the
    policy's own."""

    trajectory_id: str
    turn: int
    token_ids: Sequence[int]
    max_tokens: int
    temperature: float
    stop: StopConditions
    seed: int
    max_seconds: float = inf
    begins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """The sampler's output: token ids and their logprobs under the distribution that was sampled from (temperature
    applied; for temperature 0 the logprobs are those of temperature 1).

    `policy_version` is that of the weights with which the turn began; a sampler's weights may change within a turn.
    `seconds` is how long the sampler worked on these tokens. It includes neither the wait for a slot nor the part of a
    forward pass beyond a few times the usual duration (`policy.stops`): a stall is not the policy's own time.
    None: the sampler cannot tell writing from waiting, so a limit on the policy's own time is refused. `waited` is how
    long the turn waited before the sampler began, if known.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length", "time"]
    policy_version: int = 0
    seconds: float | None = field(default=None, compare=False)
    waited: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of tokens with one origin. Only action segments carry logprobs (one per token) and are trained.

    `policy_version` is set for a turn that was begun with newer weights than the trajectory (None: with the same).
    """

    kind: Literal["prompt", "action", "observation"]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    policy_version: int | None = None


class StopReason(StrEnum):
    """Why a rollout ended. The first group is scored, the second is Invalid."""

    ANSWERED = "answered"  # the model gave an answer
    MALFORMED = "malformed"  # the model wrote neither a call nor an answer
    MAX_TURNS = "max_turns"  # the turn limit came before an answer
    MAX_TOKENS = "max_tokens"  # the token limit of the turn or trajectory came before an answer
    MAX_TOOL_CALLS = "max_tool_calls"  # the model asked for more tool calls than allowed
    MAX_TIME = "max_time"  # the model wrote for longer than allowed; waiting is not counted

    DEADLINE = "deadline"  # the rollout waited for too long; this says nothing about the policy
    TOOL_FAILED = "tool_failed"  # a tool or engine failed
    SAMPLER_FAILED = "sampler_failed"  # the sampler failed, or the chat model used instead of it
    REWARD_FAILED = "reward_failed"  # the reward function or judge failed

    @property
    def is_failure(self) -> bool:
        """True for reasons that end a rollout Invalid."""
        return self in _FAILURES


_FAILURES = frozenset(
    {StopReason.DEADLINE, StopReason.TOOL_FAILED, StopReason.SAMPLER_FAILED, StopReason.REWARD_FAILED}
)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one tool call: the text shown to the model and the passages behind it. `queries` are those that a
    search engine was asked; a call that asked none has none. They are not in a run's record."""

    call: ToolCall
    text: str
    passages: tuple[Passage, ...] = ()
    latency_s: float = 0.0
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout as it happened. `segments` begins with the prompt, then alternates action and observation (a baseline
    that prompts the model several times has a prompt each time); it is empty if the model was called with messages.
    `opening` holds the results that stand in the prompt (`OpeningEnvironment`): the policy made none of their calls.
    `policy_version` is that of the first turn, which is the oldest. `chat_tokens` are those that an endpoint says it
    was given and wrote, in all turns; None if they are unknown."""

    id: str
    question: Question
    role: str
    segments: tuple[Segment, ...]
    actions: tuple[Action, ...]
    tool_results: tuple[ToolResult, ...]
    stop_reason: StopReason
    answer: str | None = None
    failure: str | None = None
    policy_version: int = 0
    chat_tokens: tuple[int, int] | None = None
    opening: tuple[ToolResult, ...] = ()

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """All results in the order in which they were shown: the prompt's, then the results of the policy's calls."""
        return (*self.opening, *self.tool_results)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages of all results as they were shown. An answer cites them by their place, from 1 on: `[2]`."""
        return tuple(passage for result in self.results for passage in result.passages)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All ids in order: [T]."""
        return tuple(token for segment in self.segments for token in segment.token_ids)

    @property
    def loss_mask(self) -> tuple[bool, ...]:
        """True on action tokens: [T]."""
        return tuple(segment.kind == "action" for segment in self.segments for _ in segment.token_ids)

    @property
    def rollout_logprobs(self) -> tuple[float, ...]:
        """Logprobs of action tokens, 0.0 elsewhere: [T]."""
        return tuple(
            value
            for segment in self.segments
            for value in (segment.logprobs if segment.kind == "action" else (0.0,) * len(segment.token_ids))
        )

    @property
    def num_action_tokens(self) -> int:
        """Number of tokens that the policy wrote."""
        return sum(len(segment.token_ids) for segment in self.segments if segment.kind == "action")


@dataclass(frozen=True, slots=True)
class Scored:
    """A valid outcome: the reward and its named parts."""

    reward: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Invalid:
    """No outcome: something outside the policy failed. The rollout is left out of the loss, the baseline and the
    proposer's reward."""

    reason: StopReason
    detail: str = ""


Outcome = Scored | Invalid


@dataclass(frozen=True, slots=True)
class TrajectoryGroup:
    """Trajectories that share a baseline; `outcomes[i]` belongs to `trajectories[i]`.

    `replaced` holds the failed attempts at members that were then rolled out again; they are not members of the group.
    """

    key: str
    trajectories: tuple[Trajectory, ...]
    outcomes: tuple[Outcome, ...]
    replaced: tuple[tuple[Trajectory, Invalid], ...] = ()

    @property
    def attempts(self) -> list[tuple[Trajectory, Outcome]]:
        """The members, then the attempts that they replaced."""
        return [*zip(self.trajectories, self.outcomes, strict=True), *self.replaced]


@dataclass(frozen=True, slots=True)
class Episode:
    """One round of self-play: a proposal and everything that resulted from it.

    `proposer.question` is the task: the passage or answer from which a question was to be made. `outcome` is the
    proposer's: Invalid if a failure outside the policies prevented the proposal from being scored. `question` is the
    accepted question, or None if the proposal was rejected; `rejected` then names the reason. `checks` are the readings
    that verified it, each with its outcome, `solvers` the attempts to answer it, `replaced` failed attempts at the
    proposal itself.
    """

    proposer: Trajectory
    outcome: Outcome
    question: Question | None = None
    rejected: str | None = None
    checks: tuple[tuple[Trajectory, Outcome], ...] = ()
    solvers: TrajectoryGroup | None = None
    replaced: tuple[tuple[Trajectory, Invalid], ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """Everything that a learner sees of a trajectory. Every list has length T; `advantages` is 0.0 off the mask.

    The four before `id` are optional; those that are there are 0.0 off the mask. `old_logprobs` are those of the policy
    that sampled, as the learner computes it, to which ratios are taken; None: those of the optimizer step's own forward
    pass, held constant. All samples of a batch have them, or none. `ref_logprobs` are a frozen reference policy's,
    `values` a critic's predictions before the batch's first step, `returns` the targets that it learns to predict. `id`
    is the trajectory's, "" for a sample that is made of none.
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    rollout_logprobs: tuple[float, ...]
    advantages: tuple[float, ...]
    weight: float = 1.0
    role: str = "solver"
    group: str = ""
    policy_version: int = 0
    old_logprobs: tuple[float, ...] | None = None
    ref_logprobs: tuple[float, ...] | None = None
    values: tuple[float, ...] | None = None
    returns: tuple[float, ...] | None = None
    id: str = ""
