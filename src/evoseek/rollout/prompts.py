"""Prompt sets: Jinja files, one for each kind of prompt or message. A directory with files of these names replaces a
set; missing ones come from the set `default`.

    solver.jinja             the solver's user message; variables `question`, `format` ("tags" or "tools"), `max_calls`
                             (a rollout's number of calls, or none), `has_search` (False: only tools of the user's own)
    own_tools.jinja          for these, included by it in the format tags; `own_tools`, each with `name`, `description`
                             and `arguments`
    solver_web.jinja         for a solver that searches and browses the web; variables as above
    closed_book.jinja        for a solver without tools; variables as above
    proposer_passage.jinja   for a proposer that begins with a passage; `hops`, `searches` (one less;
                             both are undefined where the proposer chooses), `title` and `text` of the passage ("" if
                             it is not to be shown), `examples`, `format`
    proposer_answer.jinja    for a proposer that begins with an answer; `answer`, `searches`, `examples`, `format`
    reader.jinja             for a reader; `question`, `passages` (empty: closed book), `format`
    simulator_useful.jinja   for a simulated search engine's helpful documents; `question`, `answers`, `query`,
    simulator_noisy.jinja    and unhelpful ones; `earlier` (the rollout's other queries so far), `documents`
                             (how many), `max_words` (of each)
    simulator_label.jinja    for a judge of search results; `question`, `query`, `passages`
    judge.jinja              for a judge; `question`, `golden_answers`, `answer`
    support.jinja            for a judge of support; `question`, `answer`, `passages` that its rollout found
    question_filter.jinja    for a judge of questions; `question`
    reading.jinja            for a reading agent; `task`, `title` of the page, `memory` (notes so far), `segment`
    baseline_*.jinja         for the baselines; `evoseek.eval.baselines` lists their variables
    search_first.jinja       for a solver after a search for its question; `question`, `passages`,
                             `format`, `max_calls`
    observation.jinja        the text of a search's result; variables `passages`, best first, maybe none, and `first`,
                             the number of the first one
    web_results.jinja        of a web search; `searches`, each with `query` and `passages` (their `id` is the URL)
    pages.jinja              of browsing; `pages`, each with `url`, `title`, `text`, `problem` (one is "")
    final_answer.jinja       shown instead of a result when no call is left, or too many turns were malformed
    malformed.jinja          shown after a turn with neither a call nor an answer; `problem`, `role` ("solver",
                             "proposer", "reader"), `tools` (their names), `format`

`proposer_passage.examples.json` and `proposer_answer.examples.json` hold the `examples`, a list of objects. They are
optional; their keys are used by the set's templates only.

Every `{{ value }}` in a message is text from outside: it can hold neither a control token nor a tag. The file's own
text is template text. An observation is outside text as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from jinja2 import Template as JinjaTemplate
from jinja2 import TemplateError, TemplateNotFound

from evoseek.errors import ConfigError
from evoseek.renderers.encoding import outside, plain, trusted
from evoseek.storage.files import expanded, read_regular
from evoseek.text.templates import bounded, sandbox

_SETS = Path(__file__).parent / "prompts"


class PromptTemplate:
    """One file of a set."""

    def __init__(self, template: JinjaTemplate) -> None:
        self._template = template

    def marked(self, **values: object) -> str:
        """Return the text of a message, with the template's own words marked as such. Raises ConfigError."""
        path = Path(self._template.filename or "")
        try:
            if path.is_relative_to(_SETS):
                return trusted(self._template.render(values))
            return trusted(bounded(self._template, lambda: self._template.render(values)))
        except TemplateError as error:
            raise ConfigError(
                f"The prompt file {path} cannot be rendered: {error}. It may use the variables "
                f"{', '.join(sorted(values))}; correct the file (or, where a key of an example is missing, the file of "
                "its examples), or use a set that comes with the package.",
                code="prompts.not_rendered",
            ) from error

    def text(self, **values: object) -> str:
        """Return the rendered text without marks: all of it is outside text."""
        return plain(self.marked(**values)).strip()


class PromptSet:
    """The prompts in a directory, by name: `prompts["solver"]`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = sandbox(directory, _SETS / "default", finalize=outside)

    def __getitem__(self, name: str) -> PromptTemplate:
        try:
            return PromptTemplate(self._environment.get_template(f"{name}.jinja"))
        except TemplateNotFound as error:
            raise ConfigError(
                f"There is no prompt {name}.jinja, neither in {self.directory} nor among the default ones. Correct the "
                "name, or add the file.",
                code="prompts.no_prompt",
            ) from error
        except TemplateError as error:
            raise ConfigError(
                f"The prompt file {self.directory / name}.jinja is not valid Jinja: {error}.", code="prompts.not_jinja"
            ) from error

    def malformed(self, problem: str, *, role: str, tools: Iterable[str], format: str) -> str:
        """Return the notice after a malformed turn to a model in a role with these tools, marked. Without tools it
        speaks of the answer alone. Raises ConfigError."""
        names = list(tools)
        problem = problem if names else "it gives no answer in the form that was asked for"
        return self["malformed"].marked(problem=problem, role=role, tools=names, format=format)

    def path(self, name: str) -> Path:
        """Return the file of a template: the set's own, or the default one."""
        own = self.directory / f"{name}.jinja"
        return own if own.is_file() else _SETS / "default" / own.name

    def examples(self, name: str) -> list[Mapping[str, object]]:
        """Return the few-shot examples for a template, from `<name>.examples.json` beside it; none without such a file.
        Raises ConfigError."""
        path = self.path(name).with_name(f"{name}.examples.json")
        if not path.exists():
            return []
        try:
            found: object = json.loads(read_regular(path))
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"The examples in {path} cannot be read: {error}. Correct the JSON, or remove the file to do without "
                "examples.",
                code="prompts.examples",
            ) from error
        if not isinstance(found, list) or not all(
            isinstance(example, Mapping) for example in cast(list[object], found)
        ):
            raise ConfigError(
                f"The examples in {path} are not a list of JSON objects. Write [{{...}}, {{...}}] with the keys that "
                f"{name}.jinja uses, or remove the file to do without examples.",
                code="prompts.examples",
            )
        return cast(list[Mapping[str, object]], found)


def load_prompts(name_or_directory: str | Path) -> PromptSet:
    """Return a set that comes with the package (`default`, `short`, `tiny`) or a directory of the user's. Raises
    ConfigError."""
    for directory in (_SETS / name_or_directory, expanded(name_or_directory)):
        if directory.is_dir() and any(directory.glob("*.jinja")):
            return PromptSet(directory)
    names = ", ".join(sorted(path.name for path in _SETS.iterdir() if path.is_dir()))
    raise ConfigError(
        f"There is no prompt set {str(name_or_directory)!r}: it is neither one of {names} nor a directory with "
        "prompts. Name one of these, or a directory with files such as solver.jinja and observation.jinja.",
        code="prompts.missing",
    )
