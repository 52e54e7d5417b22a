"""Self-play on a stage: all players say what a table says, by the ids of their trajectories."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from tests.doubles.scripted import ScriptedSampler
from tools.tiny.tokenizer import tiny_tokenizer

from evoseek.errors import SamplerError, ToolError
from evoseek.protocols import Environment
from evoseek.renderers.tags import TagRenderer
from evoseek.reward.functions import AnswerReward
from evoseek.rollout.environments import AnswerProposerEnv, PassageProposerEnv, ReaderEnv, SolverEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import Roller
from evoseek.selfplay.episode import SelfPlay
from evoseek.selfplay.filters import RuleFilter
from evoseek.selfplay.proposer_reward import ProposerReward
from evoseek.selfplay.verify import Verifier
from evoseek.types import Completion, Passage, SampleRequest, ToolCall, ToolResult

TOKENIZER = tiny_tokenizer()
Turns = Sequence[str]
Delay = Callable[[str], int]


class Library:
    """The tool `search`: one passage for every query, titled by it. The query `down` fails, `hang` never comes back,
    `nothing` finds none."""

    name = "search"
    schema: ClassVar = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}

    def __init__(self, delay: Delay) -> None:
        self.delay = delay

    def for_question(self, question, trajectory_id):
        return self

    async def __call__(self, call: ToolCall) -> ToolResult:
        query = str(call.arguments["query"])
        for _ in range(self.delay(query)):
            await asyncio.sleep(0)
        if query == "down":
            raise ToolError("the engine is down")
        if query == "hang":
            await asyncio.Event().wait()
        if query == "nothing":
            return ToolResult(call, "", queries=(query,))
        passage = Passage(f"{query}#0", query, query, f"{query} 's mayor is meri .")
        return ToolResult(call, passage.text, (passage,), queries=(query,))


class Cast(ScriptedSampler):
    """What each trajectory says, by its id without the key. Who is not in the table fails; an exception is raised."""

    def __init__(self, table: Mapping[str, Turns | Exception], delay: Delay) -> None:
        super().__init__(self._say, TOKENIZER, logprob=-0.5)
        self.table, self.delay = table, delay

    async def sample(self, request: SampleRequest) -> Completion:
        for _ in range(self.delay(f"{request.trajectory_id}/{request.turn}")):
            await asyncio.sleep(0)
        return await super().sample(request)

    def _say(self, request: SampleRequest) -> str:
        name = request.trajectory_id.partition("/")[2]
        turns = self.table.get(name)
        if isinstance(turns, Exception):
            raise turns
        if turns is None or request.turn >= len(turns):
            raise SamplerError(f"{name} has no turn {request.turn}")
        return turns[request.turn]


@dataclass
class Stage:
    """`stage(table)` gives the episodes; `shown` are the passages that each reader was given."""

    sampler: Cast = field(init=False)
    shown: list[tuple[Passage, ...]] = field(default_factory=list)

    def __call__(
        self,
        table: Mapping[str, Turns | Exception],
        *,
        delay: Delay = lambda _: 0,
        verify: Mapping[str, object] | None = None,
        backwards: bool = False,
        proposer_reward: ProposerReward | None = None,
        attempts: int = 2,
        **options: object,
    ) -> SelfPlay:
        """Proposers work from passages or, if `backwards`, from answers; a verifier checks what `verify` switches."""
        self.sampler = Cast(table, delay)
        tools, prompts = [Library(delay)], load_prompts("tiny")
        proposer = AnswerProposerEnv if backwards else PassageProposerEnv
        verifier = None if verify is None else Verifier(self.reader, AnswerReward(), 0, **verify)
        return SelfPlay(
            proposer=self.roller(proposer(tools, prompts)),
            solver=self.roller(SolverEnv(tools, prompts)),
            rules=RuleFilter(),
            reward=AnswerReward(),
            proposer_reward=proposer_reward or ProposerReward(),
            attempts=attempts,
            verifier=verifier,
            **options,
        )

    def reader(self, passages: Sequence[Passage]) -> Roller:
        self.shown.append(tuple(passages))
        return self.roller(ReaderEnv(passages, load_prompts("tiny")))

    def roller(self, env: Environment) -> Roller:
        return Roller(env, TagRenderer(TOKENIZER), self.sampler, Limits(), temperature=1.0, seed=0)


@pytest.fixture
def stage() -> Stage:
    return Stage()
