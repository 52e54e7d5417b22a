"""Prompts exactly as a model gets them. Only the model's tokenizer is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

from evoseek.assembly.agent import limits_of
from evoseek.assembly.settings import TrainingSettings
from evoseek.config.registry import build
from evoseek.config.sections import lookup
from evoseek.errors import ConfigError
from evoseek.models.load import load_tokenizer
from evoseek.models.shape import prompts_for
from evoseek.protocols import Environment, OpeningEnvironment, Tool
from evoseek.renderers.tool_calls import make_renderer
from evoseek.rollout.environments import AnswerProposerEnv, PassageProposerEnv, ReaderEnv, answer_task, passage_task
from evoseek.rollout.prompts import PromptSet, load_prompts
from evoseek.rollout.settings import EnvironmentContext, ToolContext
from evoseek.types import Message, Passage, Question, StopConditions, ToolResult

Role = Literal["solver", "closed-book", "reader", "proposer"]

_PASSAGE = Passage("example", "example", "Kalo", "Kalo is a city. Its mayor is Meri Vesu.")
_TEXTS = {"solver": "Who is the mayor of Kalo?", "hops": _PASSAGE.text, "searches": "Meri Vesu"}
_REQUESTED = 2  # hops or searches


@dataclass(frozen=True, slots=True)
class Shown:
    """A prompt as the model gets it: its token ids and their text with special tokens, or messages, without ids.
    `template` is its file ("" for a user's own environment), `stop` holds the strings that end the model's turn."""

    role: str
    system: str
    model: str
    format: str
    template: str
    tokens: int
    text: str
    token_ids: tuple[int, ...]
    stop: StopConditions


def rendered(settings: TrainingSettings, role: Role, text: str) -> Shown:
    """Render the prompt of a role. Raises EvoseekError."""
    own = settings.policy
    tokenizer = load_tokenizer(own.model)
    prompts = load_prompts(prompts_for(own.model, own.prompts))
    tools = _tools(settings, prompts) if role in ("solver", "proposer") else []
    renderer = make_renderer(tokenizer, own.format, [tool.schema for tool in tools])
    env, template, question = _example(settings, role, text, tools, prompts, renderer.format)
    ids = renderer.render_prompt(_messages(env, question))
    return Shown(
        role=role,
        system=settings.run.system,
        model=own.model,
        format=renderer.format,
        template=str(prompts.path(template)) if template else "",
        tokens=len(ids),
        text=str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)),
        token_ids=tuple(ids),
        stop=renderer.stop,
    )


def messages_shown(settings: TrainingSettings, role: Role, text: str) -> Shown:
    """Show the messages that the model of [answerer] gets for a question. Their tokens are not known here, so there are
    none. Raises EvoseekError."""
    called, own = settings.answerer, settings.policy.prompts
    prompts = load_prompts(prompts_for("" if called.base_url else called.model, own))
    tools = _tools(settings, prompts) if role == "solver" else []
    env, template, question = _example(settings, role, text, tools, prompts, "tags")
    messages = "\n\n".join(f"{message.role}: {message.content}" for message in _messages(env, question))
    path = str(prompts.path(template)) if template else ""
    return Shown(role, settings.run.system, called.model, "messages", path, 0, messages, (), StopConditions())


def _example(
    settings: TrainingSettings,
    role: Role,
    text: str,
    tools: list[Tool],
    prompts: PromptSet,
    format: Literal["tags", "tools"],
) -> tuple[Environment, str, Question]:
    question = Question("example", text or _TEXTS["solver"], ())
    if role == "reader":
        return ReaderEnv([_PASSAGE], prompts, format), "reader", question
    if role == "proposer":
        kind = lookup(settings, "searches")
        if kind is None:
            raise ConfigError(f"{settings.run.system} has no proposer. Name a self-play system: dr-zero or ssp.")
        text = text or _TEXTS[kind[1]]
        if kind[1] == "hops":
            passage = Passage("example", "example", _PASSAGE.title if text == _PASSAGE.text else "", text)
            task = passage_task("example", passage, _REQUESTED if lookup(settings, "proposer.ratio") else 0)
            return PassageProposerEnv(tools, prompts, format), "proposer_passage", task
        return AnswerProposerEnv(tools, prompts, format), "proposer_answer", answer_task("example", text, _REQUESTED)
    calls = limits_of(settings.rollout, prompts).calls
    env = cast(
        "Environment", build("environment", settings.environment, EnvironmentContext(tools, prompts, format, calls))
    )
    template = str(getattr(env, "template", ""))
    return env, "closed_book" if template and role != "solver" else template, question


def _messages(env: Environment, question: Question) -> list[Message]:
    """Return the prompt's messages, with example results of the calls before the first turn."""
    if not isinstance(env, OpeningEnvironment):
        return env.messages(question)
    return env.opened(question, [ToolResult(call, "", (_PASSAGE,)) for call in env.opening(question)])


def _tools(settings: TrainingSettings, prompts: PromptSet) -> list[Tool]:
    """Build the tools of the settings only for their names and schemas: nothing is opened."""

    def shared(name: str, make: Callable[[], Any]) -> Any:
        return made.setdefault(name, make())

    made: dict[str, Any] = {}
    unused: Any = _Unused()
    context = ToolContext(settings, prompts, unused, shared, lambda: unused)
    return [cast("Tool", build("tool", tool, context)) for tool in settings.tools]


class _Unused:
    def __getattr__(self, name: str) -> Any:
        return self
