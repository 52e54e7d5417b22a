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
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from textwrap import shorten
from typing import Literal, cast

SHORT_ANSWER = 10
"""Maximum number of words in a short answer."""
TERM = 7
"""The level of a heading that is a term in a list of definitions: below the levels of sections, 1 to 6."""
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
        """Ids of documents that searches for this question never return, as if they were not in the index."""
        return frozenset(cast("Iterable[str]", self.metadata.get("hidden", ())))

    @property
    def support(self) -> tuple[str, ...]:
        """The documents' sentences that support the answer, as they stand there."""
        return tuple(cast("Iterable[str]", self.metadata.get("support", ())))

    @property
    def is_long(self) -> bool:
        """Whether the answer is one or more sentences: the question has support, or every golden answer has more than
        ten words."""
        lengths = [len(answer.split()) for answer in self.golden_answers]
        return bool(self.support) or min(lengths, default=0) > SHORT_ANSWER


@dataclass(frozen=True, slots=True)
class Mark:
    """The page (from 1; of slides the slide) and the heading that a document's text is under from `start` on.

    `level` is the level of a heading whose line begins at `start` (1: the highest). 0: no heading line, but a new page,
    or a new row of a table (`heading` then names the row).
    """

    start: int
    page: int | None = None
    heading: str | None = None
    level: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A source text as read from the user's corpus.

    `file` is the path, within the corpus, of the file that was read. `marks` are its pages and headings in the order of
    their starts, if the format has them.
    """

    id: str
    title: str
    text: str
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
    file: str | None = None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document. `text` ends with the document's text[start:end]. If the passage begins within a table, the
    table's column headings come before that. `score` is set by a search engine.

    `file`, `page` and `heading` say where the passage stands, so that a reader can find it: the path within the corpus,
    the page of a PDF or slide of a presentation (from 1), and the nearest heading, or the row of a table. None if the
    source has none. A policy sees only the heading (`label`). `copies` are other passages with the same text that the
    same search found.
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
        """Title and heading, the heading cut at 100 characters. The heading is left out if it names a row of a table,
        or if the title or the beginning of the text repeats it."""
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
        """Split `contents` into title and text. A single line is a text without a title."""
        title, _, text = contents.partition("\n")
        title = title.strip()
        if not text:
            return "", title
        is_quoted = len(title) > 1 and title[0] == title[-1] == '"'  # as in Search-R1's corpus
        return title[1:-1] if is_quoted else title, text

    @property
    def place(self) -> dict[str, object]:
        """Where to find the passage, as JSON values: the file, with page and heading if there are any. Empty for a
        passage that was not read from a file."""
        if self.file is None:
            return {}
        fields = {"file": self.file, "page": self.page, "heading": self.heading}
        return {key: value for key, value in fields.items() if value is not None}

    @property
    def citation(self) -> str:
        """Where to find the passage: `setup.pdf, page 3` or `setup.md, "Installing"`; without a file, its document."""
        heading = f'"{self.heading}"' if self.heading else ""
        return ", ".join(filter(None, (self.file or self.document_id, self.page_name, heading)))

    @property
    def documents(self) -> frozenset[str]:
        """The ids of the documents that contain the text."""
        return frozenset((self.document_id, *(copy.document_id for copy in self.copies)))

    @property
    def page_name(self) -> str:
        """The page, as in `page 3`; empty without a page."""
        return "" if self.page is None else f"page {self.page}"


@dataclass(frozen=True, slots=True)
class ProposerTask:
    """What a proposer writes its question from: a passage, or, without one, the answer in the task's text.

    `requested` is the number of hops or searches (0: the proposer's choice). If `shown` is False, the proposer did not
    see the passage. `id` is the same for all copies of a task ("": it was not copied from any).
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
    """The text of a reply, with the numbers of prompt and reply tokens that the server counted."""

    tokens: tuple[int, int]

    @classmethod
    def of(cls, text: str, tokens: tuple[int, int]) -> CountedText:
        counted = cls(text)
        counted.tokens = tokens
        return counted


@dataclass(frozen=True, slots=True)
class Action:
    """A parsed completion: tool calls, an answer, or neither (`problem` then says why, in words).

    `question` is set if a proposer stated its question.
    """

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    answer: str | None = None
    question: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class StopConditions:
    """Where a completion ends: after a string or after a token id. The completion keeps either."""

    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One turn to sample. `token_ids` is the whole context so far; a sampler may reuse the keys and values that it
    already holds for `trajectory_id`. The random stream depends only on (`seed`, `trajectory_id`, `turn`) and on
    whether `begins` is given. The turn ends after the first token that completes `max_seconds` of the sampler's work.
    It is forced to begin with the ids of `begins`; their logprobs are the policy's own."""

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
    """The sampler's output: token ids and their logprobs under the sampled distribution (temperature applied; for
    temperature 0, logprobs are at temperature 1).

    `policy_version` is the version of the weights with which the turn began; weights may change within a turn.
    `seconds` is how long the sampler worked on these tokens. It includes neither the wait for a slot nor the part of a
    forward pass beyond a few times the usual duration (`samplers.torch.stops`): a stall is not the policy's own time.
    If `seconds` is None, the sampler cannot tell writing from waiting, and a limit on the policy's own time is refused.
    `waited` is how long the turn waited before the sampler began, if known.
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

    `policy_version` is set if the turn began with newer weights than the trajectory (None: with the same), and
    `ended_version` if the weights changed during the turn. `cause` says why a prompt after the first one was needed.
    """

    kind: Literal["prompt", "action", "observation"]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    policy_version: int | None = None
    ended_version: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class ContextTurn:
    """A turn in a context: its action, the ids that the policy wrote, and the ids of what it was shown after them."""

    action: Action
    written: tuple[int, ...]
    shown: tuple[int, ...] = ()

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All ids in order."""
        return (*self.written, *self.shown)


class StopReason(StrEnum):
    """Why a rollout ended. Reasons of the first group are scored, those in the second make the rollout Invalid."""

    ANSWERED = "answered"  # the model gave an answer
    MALFORMED = "malformed"  # the model wrote neither a call nor an answer
    MAX_TURNS = "max_turns"  # the turn limit came before an answer
    MAX_TOKENS = "max_tokens"  # the token limit of the turn or trajectory came before an answer
    MAX_TOOL_CALLS = "max_tool_calls"  # the model asked for more tool calls than allowed
    MAX_TIME = "max_time"  # the model wrote for longer than allowed; waiting is not counted

    DEADLINE = "deadline"  # the rollout waited too long; this says nothing about the policy
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
    """The result of one tool call: the text shown to the model and the passages behind it. `queries` are the queries
    that a search engine received, if any. They are not in a run's record."""

    call: ToolCall
    text: str
    passages: tuple[Passage, ...] = ()
    latency_s: float = 0.0
    queries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One rollout as it happened. `segments` begins with the prompt, then alternates action and observation. Another
    prompt begins a rewritten context, or the next prompt of a baseline that prompts the model several times. It is
    empty if the model was called with messages. Actions that stand in the first prompt (`before`) have no segment.
    `opening` holds the results that stand in the prompt (`OpeningEnvironment`): the policy made none of their calls.
    `policy_version` is the first turn's, which is the oldest. `chat_tokens` are the numbers of prompt and reply tokens
    that an endpoint reported, over all turns; None if they are unknown."""

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
        """All results in the order they were shown: first the prompt's, then the results of the policy's calls."""
        return (*self.opening, *self.tool_results)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages of all results in the order they were shown. An answer cites them by number, from 1: `[2]`."""
        return tuple(passage for result in self.results for passage in result.passages)

    @property
    def branches(self) -> tuple[Trajectory, ...]:
        """The samples of this attempt, which share its outcome: for each prompt the trajectory with only the segments
        up to the next prompt. Every action is in exactly one."""
        later = [place for place, segment in enumerate(self.segments) if place and segment.kind == "prompt"]
        ends = [*later, len(self.segments)] if self.segments else []
        return tuple(replace(self, segments=self.segments[a:b]) for a, b in zip([0, *later], ends, strict=False))

    def before(self, turn: int) -> Trajectory:
        """Return what was there before an action (0: the first), from where another rollout can begin
        (`run_trajectory(start=...)`). Raises ValueError for an action that has no segment."""
        acted = [place for place, segment in enumerate(self.segments) if segment.kind == "action"]
        given = len(self.actions) - len(acted)
        if not given <= turn < len(self.actions):
            raise ValueError(f"{self.id!r} has the actions {given} to {len(self.actions) - 1}, not {turn}.")
        made = sum(len(action.tool_calls) for action in self.actions[:turn])
        return replace(
            self,
            segments=self.segments[: acted[turn - given]],
            actions=self.actions[:turn],
            tool_results=self.tool_results[:made],
            answer=None,
            failure=None,
        )

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All ids in order, of all branches: [T]."""
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
    """No outcome, since something outside the policy failed. The rollout is left out of the loss, the baseline and the
    proposer's reward."""

    reason: StopReason
    detail: str = ""


Outcome = Scored | Invalid


@dataclass(frozen=True, slots=True)
class TrajectoryGroup:
    """Trajectories that share a baseline; `outcomes[i]` belongs to `trajectories[i]`.

    `replaced` holds failed attempts that were rolled out again; they are not members of the group.
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

    `proposer.question` is the task: the passage or answer from which to write a question. `outcome` is the proposer's:
    Invalid if a failure outside the policies prevented the proposal from being scored. `question` is the accepted
    question. It is None if the proposal was rejected; `rejected` then names the reason. `checks` are the rollouts that
    verified the question, each with its outcome; `solvers` the attempts to answer it; `replaced` failed attempts at
    the proposal itself.
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

    The four fields before `id` are optional; if present, they are 0.0 off the mask. `old_logprobs` are the denominators
    of ratios: logprobs of the policy that sampled, recomputed by the learner. If they are None, the optimizer step's
    own forward pass takes their place, held constant. All samples of a batch have them, or none. `ref_logprobs` are a
    frozen reference policy's, `values` a critic's predictions before the batch's first step, `returns` the targets that
    the critic learns. `id` is the trajectory's, "" for a sample without one.
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
