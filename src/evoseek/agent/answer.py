"""Answers to a user's questions: by the policy or the model of [answerer], checked against the passages found."""

from __future__ import annotations

import math
import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

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
from evoseek.rollout.calls import Watch, unwatched
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import PromptSet
from evoseek.rollout.roller import ChatRoller, Roller
from evoseek.rollout.settings import EnvironmentContext
from evoseek.text.normalization import answer_value
from evoseek.types import Message, Outcome, Question, Scored, Trajectory

_MARKUP = r"\s*(?:<[^<>]*>\s*)*\Z"  # tags and control tokens, up to the end of the turn


@dataclass(frozen=True, slots=True)
class Answerer:
    """Answers questions, greedily. `reads_history`: whether the model is given the messages before a question, as far
    as they fit. A policy that a run trained is not, since every system trains on single questions; nor is one without a
    chat template."""

    name: str
    solver: Roller | ChatRoller
    check: Check
    refuses: bool
    reads_history: bool
    agent: Agent | None = None  # of a policy

    @classmethod
    def of(cls, context: Context) -> Answerer:
        """Choose what answers, as the settings say. Raises EvoseekError."""
        settings, check = context.settings, check_of(context, context.searched)
        refuses = settings.support.unsupported == "refuse"
        if uses_chat_model(settings):
            model = chat_roller(context, context.searched)
            return cls(model.chat.name, model, check, refuses, reads_history=True)
        agent, model = context.agent, settings.policy.model
        is_trained = context.checkpoint is not None or origin(model) != model
        reads_history = not is_trained and bool(agent.policy.tokenizer.chat_template)
        roller = context.solver(context.searched).at(0.0)
        return cls(agent.policy.name, roller, check, refuses, reads_history, agent)

    def notices(self, question: str = "") -> Iterator[str]:
        """Yield what a user should know beforehand: which model answers, or what the policy's chat template can do, and
        whether the policy cannot read the question."""
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
        """Make one rollout with its check. If the whole conversation has no room, its oldest messages are left out.

        Raises DataError for a question that has no room by itself, ToolError if the judge of [support] fails.
        """
        asked = Question(trajectory_id, question, ())
        kept = self._fitting(asked, history if self.reads_history else ())
        trajectory = await self.solver.after(kept).one(asked, trajectory_id, watch=watch)
        support = await self.check(trajectory)
        certainty, dropped = self._certainty(trajectory), len(history) - len(kept)
        return Answered(trajectory, support, self.refuses, dropped, len(kept), certainty)

    async def answer_alone(self, question: str) -> Answered:
        """Answer a question without a conversation, under an id of its own."""
        return await self.answer(question, f"ask-{secrets.token_hex(16)}")

    def _certainty(self, trajectory: Trajectory) -> float | None:
        if self.agent is None or isinstance(self.solver, ChatRoller):
            return None
        return certainty_of(trajectory, self.agent.decode, temperature=self.solver.temperature)

    def _fitting(self, question: Question, history: Sequence[Message]) -> Sequence[Message]:
        solver = self.solver

        def fits(start: int) -> bool:
            rest = history[start:]
            return not rest or solver.after(rest).has_room(question)

        if not fits(0):  # each time the whole conversation is rendered
            starts = [number for number, message in enumerate(history) if number and message.role == "user"]
            starts.append(len(history))
            history = history[starts[bisect_left(starts, True, key=fits)] :]
        length, longest = solver.prompt_length(question), solver.limits.max_total_tokens
        if not history and length >= longest:
            raise DataError(
                f"The question's prompt has {length} tokens, but a rollout may have {longest} in all "
                "(rollout.max_total_tokens). Ask a shorter question."
            )
        return history


def check_of(context: Context, engine: object) -> Check:
    """Return the check of answers that [support] names, for what this engine finds (None: nothing is searched). Raises
    EvoseekError."""
    if not context.settings.support.model:
        return partial(by_words, index=engine if isinstance(engine, WordCounts) else None)
    chat, prompts = context.chat("support")
    return SupportJudge(chat, prompts["support"])


class CitedF1:
    """A RewardFn that needs no labels of people: of answers of sentences (`Question.is_long`) `cited_f1` of what the
    check of evidence leaves, of short ones F1. Of an unanswerable question 1 for a refusal and 0 for anything else. A
    judge that fails makes a rollout Invalid."""

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
    """Say whether the model of [answerer] is to answer. Raises ConfigError if some of its settings are set, but not its
    model."""
    answerer = settings.answerer
    if answerer.model or answerer.base_url:
        return True
    before = type(answerer)()
    changed = [key for key in type(answerer).model_fields if getattr(answerer, key) != getattr(before, key)]
    if changed:
        raise ConfigError(
            f"answerer.{changed[0]} is set, but neither answerer.model nor answerer.base_url. Set answerer.model (and "
            "answerer.base_url, if it is behind an endpoint), or leave [answerer] out to ask the policy."
        )
    return False


def chat_roller(context: Context, engine: SearchEngine | QuestionEngine | None, search: bool = True) -> ChatRoller:
    """Return the model of [answerer], which searches with this engine or the web, or not at all. Raises
    EvoseekError."""
    chat, prompts = context.chat("answerer")
    env, limits = chat_environment(context, prompts, engine, search)
    return ChatRoller(chat, env, limits)


def chat_environment(
    context: Context, prompts: PromptSet, engine: SearchEngine | QuestionEngine | None, search: bool = True
) -> tuple[Environment, Limits]:
    """Return the environment of a chat model with these prompts, which searches with this engine or the web, or not at
    all, and the limits of its rollouts. Raises ConfigError."""
    settings, tools = context.settings, context.tools(prompts, engine) if search else []
    limits = limits_of(settings.rollout, prompts)
    env = build("environment", settings.environment, EnvironmentContext(tools, prompts, "tags", limits.calls))
    return env, limits


def certainty_of(trajectory: Trajectory, decode: Callable[[Sequence[int]], str], *, temperature: float) -> float | None:
    """Return exp of the mean logprob of the answer's own tokens, without its tags: the geometric mean of the
    probabilities that the policy gives them at temperature 1, each after the ones before it.

    `temperature` is that of the rollout, `decode` turns ids into text. A rollout has logprobs of temperature 1 if it
    was sampled at 1, or greedily (`Completion`); at any other temperature its logprobs are those of another
    distribution, and there is no certainty. Nor is there without an answer, or of a model that was called with
    messages, whose tokens are not known.
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
    """Yield the places of the tokens that hold a part of the answer, from its end to its beginning."""
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
