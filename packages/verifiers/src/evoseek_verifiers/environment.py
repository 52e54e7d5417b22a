"""The part of the bridge that is evoseek's alone: from a few arguments to questions, a model's environment and a
reward."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from pydantic import BaseModel, Field

from evoseek.agent.answer import chat_environment
from evoseek.assembly.context import Context
from evoseek.assembly.inputs import evaluation_path, read_questions
from evoseek.assembly.model_defaults import follow_endpoint
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import gather
from evoseek.config.sections import with_setting
from evoseek.errors import ConfigError
from evoseek.protocols import Chat, Environment, RewardFn
from evoseek.questions.questions import save_questions
from evoseek.rollout.limits import Limits
from evoseek.rollout.prompts import load_prompts
from evoseek.rollout.roller import ChatRoller
from evoseek.search.lexical import LexicalIndex, check_index
from evoseek.types import Question
from evoseek.world.world import World


class Arguments(BaseModel):
    """What is asked, what is searched and how an answer is scored; by default all of it is of a generated world.

    Any setting of evoseek can be set, by `config` and `settings`; the four named ones are the usual ones.
    """

    config: list[str] = Field(default_factory=list[str], description="Recipes by name, or TOML files, as for --config.")
    settings: list[str] = Field(
        default_factory=list[str], description="Settings of evoseek as key=value, as for --set."
    )
    questions: str | None = Field(default=None, description="JSON-lines file of questions (evaluation.path).")
    index: str | None = Field(default=None, description="Directory of the index (evaluation.index).")
    prompts: str | None = Field(default=None, description="Prompt set, or a directory of prompts (policy.prompts).")
    reward: str | None = Field(default=None, description="Name of the reward, or package.module:Name (reward.name).")
    max_calls: int | None = Field(
        default=None, ge=0, description="Maximum number of tool calls of a rollout (rollout.max_tool_calls)."
    )
    world_seed: int = Field(default=0, description="Seed of the generated world, used if no questions are given.")
    world_split: Literal["train", "evaluation"] = Field(
        default="evaluation", description="Split of names of the generated world; no name is in both."
    )
    world_entities: int = Field(default=400, ge=200, description="Number of articles of the generated world.")
    world_questions: int = Field(default=200, ge=1, description="Number of questions about the generated world.")

    def read(self) -> TrainingSettings:
        """The settings, with those that were not given chosen for a chat model. Raises ConfigError."""
        named = {
            "evaluation.path": self.questions,
            "evaluation.index": self.index,
            "policy.prompts": self.prompts,
            "reward.name": self.reward,
            "rollout.max_tool_calls": self.max_calls,
        }
        given = gather([Path(file) for file in self.config], options=named, sets=self.settings)
        return follow_endpoint(given.read())


@dataclass(frozen=True, slots=True)
class Opened:
    """The questions, a model's environment with its limits, and the reward with its name. Shared by all rollouts of a
    process, and open until its end."""

    settings: TrainingSettings
    questions: Sequence[Question]
    env: Environment
    limits: Limits
    reward: RewardFn
    metric: str

    def model(self, chat: Chat) -> ChatRoller:
        """Return a chat model in this environment, as `evoseek eval` evaluates the model of [answerer]."""
        return ChatRoller(chat, self.env, self.limits)


def open_environment(arguments: Arguments) -> Opened:
    """What the arguments say; opened once in a process. Raises EvoseekError."""
    return _opened(arguments.model_dump_json())


@cache
def _opened(arguments_json: str) -> Opened:
    arguments, closing = Arguments.model_validate_json(arguments_json), ExitStack()
    atexit.register(closing.close)
    settings = arguments.read()
    if not evaluation_path(settings):
        folder = closing.enter_context(TemporaryDirectory(prefix="evoseek-world-"))
        settings = _in_world(settings, arguments, Path(folder))
    if settings.examines_index:
        index = settings.evaluation.index or settings.search.index
        check_index(index, setting="index (evaluation.index)", engine=settings.search)
    context = closing.enter_context(Context(settings))
    questions = read_questions(evaluation_path(settings), setting="evaluation.path (questions)")
    prompts = load_prompts("default" if settings.policy.prompts == "auto" else settings.policy.prompts)
    env, limits = chat_environment(context, prompts, context.held_out_engine if settings.has_engine else None)
    asked = questions[: settings.evaluation.limit]
    return Opened(settings, asked, env, limits, context.reward, context.metric)


def _in_world(settings: TrainingSettings, arguments: Arguments, folder: Path) -> TrainingSettings:
    """The settings, with the questions and the index of a generated world, which are written into a folder."""
    if not settings.has_engine or settings.evaluation.index or settings.search.index:
        searched = settings.evaluation.index or settings.search.index or "the web"
        raise ConfigError(
            f"It was given what is searched ({searched}), but no questions. Give them, too (questions, or "
            "evaluation.path), or neither, to have a generated world with its own questions."
        )
    world = World.generate(arguments.world_seed, arguments.world_entities, arguments.world_split)
    LexicalIndex.build(folder / "index", world.passages())
    asked = world.questions(arguments.world_questions, seed=arguments.world_seed)
    save_questions(folder / "questions.jsonl", asked)
    settings = with_setting(settings, "evaluation.index", str(folder / "index"))
    return with_setting(settings, "evaluation.path", str(folder / "questions.jsonl"))
