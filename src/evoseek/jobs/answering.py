"""Answers to a user's questions: by the policy or the model of [answerer], checked against the passages found."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from evoseek.errors import DataError
from evoseek.eval.support import Check, Support, SupportJudge, by_words
from evoseek.jobs.chat_roller import ChatRoller, chat_roller, uses_chat_model
from evoseek.policy.source import origin
from evoseek.protocols import QuestionEngine, SearchEngine
from evoseek.report.answers import answer_json, answer_text
from evoseek.rollout.calls import Watch, unwatched
from evoseek.rollout.roller import Roller
from evoseek.run import asked_engine
from evoseek.training.context import Context
from evoseek.types import Message, Question, Trajectory


@dataclass(frozen=True, slots=True)
class Answered:
    """A rollout with its check. `refuses`: an answer without support is left out. `dropped` is the number of earlier
    messages that the model was not given."""

    trajectory: Trajectory
    support: Support
    refuses: bool
    dropped: int = 0

    @property
    def answer(self) -> str | None:
        """The answer; None if there is none, or if it is refused."""
        return None if self.refuses and not self.support.is_given else self.trajectory.answer

    @property
    def text(self) -> Text:
        """For a terminal."""
        return answer_text(self.trajectory, self.support, refuses=self.refuses)

    @property
    def json(self) -> dict[str, object]:
        """As JSON values."""
        return answer_json(self.trajectory, self.support, refuses=self.refuses)


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

    @classmethod
    def of(cls, context: Context) -> Answerer:
        """As the settings say. Raises EvoseekError."""
        settings, check = context.settings, check_of(context)
        refuses = settings.support.unsupported == "refuse"
        if uses_chat_model(settings):
            model = chat_roller(context, asked_engine(context))
            return cls(model.chat.name, model, check, refuses, True)
        roller = context.solver(asked_engine(context)).at(0.0)
        model = settings.policy.model
        is_trained = context.checkpoint is not None or origin(model) != model
        reads_history = not is_trained and bool(context.agent.policy.tokenizer.chat_template)
        return cls(context.agent.policy.name, roller, check, refuses, reads_history)

    async def answer(
        self, question: str, trajectory_id: str, *, history: Sequence[Message] = (), watch: Watch = unwatched
    ) -> Answered:
        """One rollout with its check. Where the whole conversation has no room, its oldest messages are left out.

        Raises DataError for a question that has no room by itself, ToolError if the judge of [support] fails.
        """
        asked = Question(trajectory_id, question, ())
        kept = self._fitting(asked, history if self.reads_history else ())
        trajectory = await self.solver.after(kept).one(asked, trajectory_id, watch=watch)
        support = await self.check(trajectory)
        return Answered(trajectory, support, self.refuses, len(history) - len(kept))

    async def answer_alone(self, question: str) -> Answered:
        """The same without a conversation, under an id of its own."""
        return await self.answer(question, f"ask-{secrets.token_hex(16)}")

    def _fitting(self, question: Question, history: Sequence[Message]) -> Sequence[Message]:
        solver = self.solver
        if isinstance(solver, ChatRoller):
            return history
        while history and not solver.after(history).has_room(question):
            rest = [number for number, message in enumerate(history) if number and message.role == "user"]
            history = history[rest[0] :] if rest else ()
        length, longest = solver.prompt_length(question), solver.limits.max_total_tokens
        if not history and length >= longest:
            raise DataError(
                f"The question's prompt has {length} tokens, but a rollout may have {longest} in all "
                "(rollout.max_total_tokens). Ask a shorter question."
            )
        return history


def check_of(context: Context) -> Check:
    """The check of answers that [support] names. Raises EvoseekError."""
    if not context.settings.support.model:
        return by_words
    chat, prompts = context.chat("support")
    return SupportJudge(chat, prompts["support"])


def searched(context: Context) -> SearchEngine | None:
    """The engine that a context's agent searches; None on the web, and for one that depends on the question."""
    engine = asked_engine(context)
    return None if isinstance(engine, QuestionEngine) else engine
