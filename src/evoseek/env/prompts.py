"""Prompt sets: Jinja files, one for each thing said to a model, to be replaced by a directory with the same names.

    solver.jinja        the solver's user message; variables `question`, `format` ("tags" or "tools")
    observation.jinja   the text of a search's result; variable `passages`, best first, maybe none

Every `{{ value }}` in a message is text from outside: it can hold neither a control token nor a tag. What the file
itself says is template text. An observation is outside text as a whole.
"""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, TemplateNotFound
from jinja2 import Template as JinjaTemplate

from evoseek.errors import ConfigError
from evoseek.policy.encoding import outside, plain, trusted

_SETS = Path(__file__).parent / "prompts"


class PromptTemplate:
    """One file of a set."""

    def __init__(self, template: JinjaTemplate) -> None:
        self._template = template

    def marked(self, **values: object) -> str:
        """The text of a message, with the template's own words marked as such. Raises ConfigError."""
        try:
            return trusted(self._template.render(values))
        except TemplateError as error:
            raise ConfigError(
                f"The prompt file {self._template.filename} cannot be rendered: {error}. It may use the variables "
                f"{', '.join(sorted(values))}; correct the file, or use a set that comes with the package."
            ) from error

    def text(self, **values: object) -> str:
        """The text without marks: all of it is outside text."""
        return plain(self.marked(**values)).strip()


class PromptSet:
    """The prompts in a directory, by name: `prompts["solver"]`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._environment = Environment(
            loader=FileSystemLoader(directory),
            undefined=StrictUndefined,
            finalize=outside,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )

    def __getitem__(self, name: str) -> PromptTemplate:
        """The template `<name>.jinja`. Raises ConfigError."""
        try:
            return PromptTemplate(self._environment.get_template(f"{name}.jinja"))
        except TemplateNotFound as error:
            raise ConfigError(
                f"The prompt set {self.directory} has no file {name}.jinja. Add it; {_SETS / 'default'} has one to "
                "copy."
            ) from error
        except TemplateError as error:
            raise ConfigError(f"The prompt file {self.directory / name}.jinja is not valid Jinja: {error}.") from error


def load_prompts(name_or_directory: str | Path) -> PromptSet:
    """A set that comes with the package (`default`, `tiny`) or a directory of the user's. Raises ConfigError."""
    for directory in (_SETS / name_or_directory, Path(name_or_directory)):
        if directory.is_dir():
            return PromptSet(directory)
    names = ", ".join(sorted(path.name for path in _SETS.iterdir() if path.is_dir()))
    raise ConfigError(
        f"There is no prompt set {str(name_or_directory)!r}: it is neither one of {names} nor a directory. Name one "
        "of these, or a directory with files such as solver.jinja and observation.jinja."
    )
