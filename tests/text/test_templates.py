"""Templates of others: whatever they do, one error within bounds of time and memory."""

import time

import pytest
from jinja2 import TemplateError
from tests.raising import raises

from evoseek.renderers.chat_template import USER, check_template, render_chat
from evoseek.rollout.prompts import load_prompts
from evoseek.text import templates
from evoseek.text.templates import bounded, sandbox

LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}BODY{% endfor %}{% endfor %}"
GROWING = "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = GROWN %}{% endfor %}{{ n.x }}"
HOSTILE = {
    "loop": LOOP.replace("BODY", "{{ i }}"),
    "silent loop": LOOP.replace("BODY", ""),
    "product": '{{ "a" * 9999999999 }}',
    "product of lists": '{{ ([1] * 999999999)|length }}',
    "sum": '{% set x = "a" * 99999999 %}{{ x ~ x ~ x ~ x ~ x ~ x ~ x ~ x }}',
    "doubling": GROWING.replace("GROWN", "n.x ~ n.x"),
    "nested lists": GROWING.replace("GROWN", "[n.x, n.x]"),
    "power": "{{ 9 ** (9 ** 9) }}",
    "itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "twice itself": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "format": '{{ "%9999999999d"|format(1) }}',
    "method format": '{{ "{:>9999999999}".format(1) }}',
    "center": '{{ "a"|center(9999999999) }}',
    "ljust": '{{ "a".ljust(9999999999) }}',
    "zfill": '{{ "a".zfill(9999999999) }}',
    "join": '{{ range(99999)|list|join("x" * 99999) }}',
    "replace": '{{ ("a" * 99999)|replace("a", "b" * 99999) }}',
    "indent": '{{ "a\\nb"|indent(9999999999) }}',
    "batch": '{{ [1]|batch(9999999999, "x")|list }}',
    "long": '{{ "a" * 11000000 }}',
    "division": "{{ 1 / 0 }}",
    "number": "{{ (9 ** 99999)|string }}",
}  # fmt: skip


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(templates, "_SECONDS", 1)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_ends_in_one_error_in_time(kind):
    template, begun = sandbox().from_string(HOSTILE[kind]), time.monotonic()
    for _ in range(3):  # only the first one takes time
        with pytest.raises(TemplateError) as raised:
            bounded(template, template.render)
        assert "\n" not in str(raised.value)
    assert time.monotonic() - begun < 5


def test_what_is_well_is_tried_once_and_errors_stay_as_they_are():
    fine, wrong, rendered = sandbox().from_string("{{ x }}"), sandbox().from_string("{{ missing }}"), []
    for value in range(3):
        assert bounded(fine, lambda value=value: rendered.append(value) or fine.render(x=value)) == str(value)
    assert rendered == [0, 1, 2]
    with pytest.raises(TemplateError, match="'missing' is undefined"):
        bounded(wrong, wrong.render)


@pytest.mark.parametrize("kind", ["loop", "product", "itself", "format", "division"])
def test_a_prompt_file_and_a_chat_template_are_named(kind, tmp_path, made):
    (tmp_path / "solver.jinja").write_text(HOSTILE[kind])
    with raises("prompts.not_rendered", match=r"The prompt file .*solver\.jinja cannot be rendered"):
        load_prompts(tmp_path)["solver"].marked(question="who?")
    tokenizer = made("base").__copy__() if hasattr(made("base"), "__copy__") else made("base")
    before = tokenizer.chat_template
    try:
        tokenizer.chat_template = HOSTILE[kind]
        assert check_template(tokenizer).call_format is None
        with raises("chat_template.refused"):
            render_chat(tokenizer, [USER])
    finally:
        tokenizer.chat_template = before
