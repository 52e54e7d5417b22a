"""Answers to a user's questions: by the policy or the model of [answerer], checked against the passages found."""

from __future__ import annotations

import math
import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from evoseek.agent.bound import Bound
from evoseek.agent.shown import Answered
from evoseek.agent.support import Check, SupportJudge, by_words
from evoseek.assembly.agent import Agent, limits_of
from evoseek.assembly.context import Context
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import build
from evoseek.errors import ConfigError, DataError
from evoseek.models.policy import vocabulary_notice
from evoseek.models.source import origin
from evoseek.protocols import Environment, QuestionEngine, SearchEngine, WordCounts
from evoseek.reward.functions import RewardSettings, cited_f1
from evoseek.reward.judge import on_one_line
from evoseek.rollout.calls import Watch, unwatched
from evoseek.rollout.environments import FollowUpEnv
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.roller import ChatRoller, Roller
from evoseek.rollout.settings import EnvironmentContext
from evoseek.text.language import is_refusal
from evoseek.text.normalization import answer_value
from evoseek.text.scripts import fold
from evoseek.types import Message, Outcome, Question, Scored, Trajectory

AnyRoller = Roller | ChatRoller
_MARKUP = r"\s*(?:<[^<>]*>\s*)*\Z"  # tags and control tokens, up to the end of the turn


@dataclass(frozen=True, slots=True)
class Answerer:
    """A greedy answerer. `reads_history`: whether the model gets the messages before a question, as far as they fit. A
    trained policy does not, since every system trains on single questions; nor does one without a chat template.
    `rewriter` makes, of the messages that the model gets, a rollout that rewrites the question as one that stands alone
    (None: it is searched as it is). `bound` leaves out uncertain answers, `bound_notice` says so, or why a bound of the
    settings does not apply."""

    name: str
    solver: AnyRoller
    check: Check
    refuses: bool
    reads_history: bool
    agent: Agent | None = None  # of a policy
    bound: Bound | None = None
    bound_notice: str = ""
    rewriter: Callable[[Sequence[Message]], AnyRoller] | None = None

    @classmethod
    def of(cls, context: Context, engine: SearchEngine | QuestionEngine | None = None) -> Answerer:
        """Build the answerer of the settings, which searches with `engine`, by default the settings' own. Raises
        EvoseekError."""
        engine = context.searched if engine is None else engine  # may have a length of 0
        settings, check = context.settings, check_of(context, engine)
        refuses = settings.support.unsupported == "refuse"
        if uses_chat_model(settings):
            model = chat_roller(context, engine)
            rewriter = partial(follow_up_roller, model, context.chat("answerer")[1])
            return cls(model.chat.name, model, check, refuses, True, None, *_bound(context), rewriter)
        agent, model = context.agent, settings.policy.model
        is_trained = context.checkpoint is not None or origin(model) != model
        reads_history = not is_trained and bool(agent.policy.tokenizer.chat_template)
        roller = context.solver(engine).at(0.0)
        bare = replace(roller, renderer=agent.renderer([]))
        rewriter = partial(follow_up_roller, bare, agent.prompts) if reads_history else None
        return cls(agent.policy.name, roller, check, refuses, reads_history, agent, *_bound(context), rewriter)

    def notices(self, question: str = "") -> Iterator[str]:
        """Yield what a user should know beforehand: which model answers, or the abilities of the policy's chat
        template, whether the policy cannot read the question, and the bound on wrong answers."""
        if self.bound_notice:
            yield self.bound_notice
        if self.agent is None:
            yield f"{self.name} answers, not the policy, as it is set in [answerer]."
            return
        if notice := self.agent.template_notice():
            yield notice
        if question and (notice := vocabulary_notice(self.agent.policy, [question], what="the question")):
            yield notice

    async def answer(
        self, question: str, trajectory_id: str, *, history: Sequence[Message] = (), watch: Watch = unwatched
    ) -> Answered:
        """Make one rollout with its check. If the conversation does not fit, its oldest messages are left out. After a
        conversation the question is first rewritten as one that stands alone, which is then searched, answered and
        checked.

        Raises DataError for a question that does not fit, ToolError if the judge of [support] fails.
        """
        asked = Question(trajectory_id, question, ())
        kept = self._fitting(asked, history if self.reads_history else ())
        asked = await self._alone(asked, kept)
        trajectory = await self.solver.after(kept).one(asked, trajectory_id, watch=watch)
        support = await self.check(trajectory)
        certainty, dropped = self._certainty(trajectory), len(history) - len(kept)
        return Answered(trajectory, support, self.refuses, dropped, len(kept), certainty, self.bound)

    async def answer_alone(self, question: str) -> Answered:
        """Answer a question without a conversation, under its own id."""
        return await self.answer(question, f"ask-{secrets.token_hex(16)}")

    async def _alone(self, question: Question, history: Sequence[Message]) -> Question:
        """Return a question as one that stands alone; as it is without a conversation, or if the model wrote none that
        leaves room for an answer."""
        if self.rewriter is None or not history:
            return question
        written = await self.rewriter(history).one(question, f"{question.id}/alone")
        text = on_one_line(written.answer or "").strip("\"'“” ")
        alone, solver = replace(question, text=text), self.solver.after(history)
        has_room = solver.prompt_length(alone) < solver.limits.max_total_tokens
        return alone if fold(text) and not is_refusal(text) and has_room else question

    def _certainty(self, trajectory: Trajectory) -> float | None:
        if self.agent is None or isinstance(self.solver, ChatRoller):
            return None
        return certainty_of(trajectory, self.agent.decode, temperature=self.solver.temperature)

    def _fitting(self, question: Question, history: Sequence[Message]) -> Sequence[Message]:
        solver = self.solver

        def fits(start: int) -> bool:
            rest = history[start:]
            return not rest or solver.after(rest).has_room(question)

        if not fits(0):  # each call renders the whole conversation
            starts = [number for number, message in enumerate(history) if number and message.role == "user"]
            starts.append(len(history))
            history = history[starts[bisect_left(starts, True, key=fits)] :]
        length, longest = solver.prompt_length(question), solver.limits.max_total_tokens
        if not history and length >= longest:
            raise DataError(
                f"The question's prompt has {length} tokens, but a rollout may have {longest} "
                "(rollout.max_total_tokens). Ask a shorter question."
            )
        return history


def follow_up_roller(solver: AnyRoller, prompts: PromptSet, history: Sequence[Message]) -> AnyRoller:
    """Return a model that rewrites a question after these messages, in one turn."""
    limits = replace(solver.limits, max_turns=1, max_malformed=0, final_answer=None)
    return replace(solver, env=FollowUpEnv(prompts, history), limits=limits)


def model_identity(context: Context) -> str:
    """Return which model answers: the model of [answerer], or the policy with its loaded checkpoint, if any."""
    settings, checkpoint = context.settings, context.checkpoint
    if uses_chat_model(settings):
        return f"{settings.answerer.model} {settings.answerer.base_url}".strip()
    return f"{settings.policy.model} {checkpoint.digest if checkpoint else ''}".strip()


def _bound(context: Context) -> tuple[Bound | None, str]:
    """Return the bound of the settings, if it is this model's, with a notice. Raises DataError."""
    if not (file := context.settings.support.bound):
        return None, ""
    if context.settings.support.unsupported == "show":
        return None, f"{file} does not apply, since unsupported answers are shown, too (support.unsupported)."
    bound, again = Bound.read(Path(file)), "Set it again with `evoseek eval --most-wrong`."
    if bound.answerer == model_identity(context):
        return bound, f"{bound} ({file})"
    return None, f"{file} was set for another model or checkpoint, so it does not apply. {again}"


def check_of(context: Context, engine: object) -> Check:
    """Return the check of answers in [support], for this engine's passages (None: no search). Raises EvoseekError."""
    if not context.settings.support.model:
        return partial(by_words, index=engine if isinstance(engine, WordCounts) else None)
    chat, prompts = context.chat("support")
    return SupportJudge(chat, prompts["support"])


class CitedF1:
    """A RewardFn that needs no human labels: for answers of sentences (`Question.is_long`) `cited_f1` of what the check
    of evidence leaves, for short ones F1. For an unanswerable question 1 for abstaining and 0 for anything else. A
    failing judge makes a rollout Invalid."""

    @classmethod
    def build(cls, settings: RewardSettings, context: Context) -> CitedF1:
        return cls(check_of(context, context.searched))

    def __init__(self, check: Check = by_words) -> None:
        self._check = check

    async def __call__(self, trajectory: Trajectory) -> Outcome:
        question, value = trajectory.question, answer_value("f1", trajectory)
        if trajectory.answer is not None and question.is_answerable and question.is_long:
            value = cited_f1(trajectory, (await self._check(trajectory)).kept)
        return Scored(value, {"cited_f1": value})


def uses_chat_model(settings: TrainingSettings) -> bool:
    """Return whether the model of [answerer] answers. Raises ConfigError if some of its settings are set, but not its
    model."""
    answerer = settings.answerer
    if answerer.model or answerer.base_url:
        return True
    before = type(answerer)()
    changed = [key for key in type(answerer).model_fields if getattr(answerer, key) != getattr(before, key)]
    if changed:
        raise ConfigError(
            f"answerer.{changed[0]} is set, but neither answerer.model nor answerer.base_url. Set answerer.model (and "
            "answerer.base_url for an endpoint), or leave [answerer] out to ask the policy."
        )
    return False


def chat_roller(context: Context, engine: SearchEngine | QuestionEngine | None, search: bool = True) -> ChatRoller:
    """Make a roller of the model of [answerer], with this engine, the web or no search. Raises EvoseekError."""
    chat, prompts = context.chat("answerer")
    env, limits = chat_environment(context, prompts, engine, search)
    return ChatRoller(chat, env, limits)


def chat_environment(
    context: Context, prompts: PromptSet, engine: SearchEngine | QuestionEngine | None, search: bool = True
) -> tuple[Environment, Limits]:
    """Return the environment of a chat model with these prompts, with this engine, the web or no search, and the limits
    of its rollouts. Raises ConfigError."""
    settings, tools = context.settings, context.tools(prompts, engine) if search else []
    limits = limits_of(settings.rollout, prompts)
    env = build("environment", settings.environment, EnvironmentContext(tools, prompts, "tags", limits.calls))
    return env, limits


def certainty_of(trajectory: Trajectory, decode: Callable[[Sequence[int]], str], *, temperature: float) -> float | None:
    """Return exp of the mean logprob of the answer's tokens, without tags: the geometric mean of the probabilities that
    the policy gives each token after the ones before, at temperature 1.

    `temperature` is the rollout's, `decode` turns ids into text. Only rollouts sampled at 1 or greedily have logprobs
    of temperature 1 (`Completion`); at any other temperature there is no certainty. Nor is there any without an answer,
    or for a model that was called with messages, whose tokens are unknown.
    """
    answer = trajectory.answer
    if not answer or temperature not in (0.0, 1.0):
        return None
    turns = [segment for segment in trajectory.segments if segment.kind == "action"]
    for action, turn in zip(reversed(trajectory.actions), reversed(turns), strict=False):
        if action.answer == answer:
            logprobs = [turn.logprobs[place] for place in _places(answer, turn.token_ids, decode)]
            return math.exp(fmean(logprobs)) if logprobs else None
    return None


def _places(answer: str, token_ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[int]:
    """Yield the places of the tokens that hold parts of the answer, from its end to its beginning."""
    text, words = decode(token_ids), re.escape(answer)
    found = re.search(rf"<answer>\s*({words})\s*</answer>", text) or re.search(rf"({words}){_MARKUP}", text)
    if found is None:
        return
    start, end = found.span(1)
    after = len(text)
    for place in range(len(token_ids) - 1, -1, -1):
        before = len(decode(token_ids[:place]))
        if before < end and after > start:
            yield place
        if before <= start:
            return
        after = before
