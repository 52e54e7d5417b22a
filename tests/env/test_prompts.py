import pytest

from evoseek.env.prompts import load_prompts
from evoseek.errors import ConfigError
from evoseek.policy.encoding import plain, split_trusted
from evoseek.types import Passage

PASSAGES = [Passage("a#0", "a", "Kalo", "Kalo 's mayor is Meri ."), Passage("b#0", "b", "Nida", "Nida is a city .")]


def test_the_tiny_prompts_are_bare():
    prompts = load_prompts("tiny")
    assert plain(prompts["solver"].marked(question="who ?", format="tags")) == "solve : who ?"
    assert prompts["observation"].text(passages=PASSAGES) == "Kalo 's mayor is Meri .\nNida is a city ."
    assert prompts["observation"].text(passages=[]) == "nothing found"


def test_the_default_prompt_explains_the_format_in_use():
    solver = load_prompts("default")["solver"]
    tags = plain(solver.marked(question="who ?", format="tags"))
    tools = plain(solver.marked(question="who ?", format="tools"))
    assert all(tag in tags for tag in ("<think>", "<search>", "</search>", "<information>", "<answer>"))
    assert "<search>" not in tools
    assert tags.endswith("Question: who ?")
    assert tools.endswith("Question: who ?")


def test_the_default_observation_numbers_the_passages_under_their_titles():
    observation = load_prompts("default")["observation"]
    text = "[1] Kalo\nKalo 's mayor is Meri .\n[2] Nida\nNida is a city ."
    assert observation.text(passages=PASSAGES) == text
    assert "Nothing was found" in observation.text(passages=())


def test_after_a_malformed_turn_each_role_is_told_what_it_can_write():
    def told(**values):
        return plain(load_prompts("default").malformed("<search> is not closed", **values))

    solver = told(role="solver", tools=["web_search", "browse"], format="tags")
    assert solver.startswith("That turn cannot be used: search is not closed.")
    assert all(tag in solver for tag in ("<search>", "<browse>", "<answer>"))
    assert "<question>" not in solver
    reader = told(role="reader", tools=[], format="tags")
    assert "<search>" not in reader
    assert reader.endswith("in a few words.")
    proposer = told(role="proposer", tools=["search"], format="tools")
    assert "call your tool" in proposer
    assert "<question> the question </question>" in proposer
    assert "<search>" not in proposer


def test_every_value_in_a_message_is_outside_text_and_the_rest_is_not(tmp_path):
    (tmp_path / "solver.jinja").write_text("{% for i in [1, 2] %}<{{ question | upper }}>{% endfor %} done")
    marked = load_prompts(tmp_path)["solver"].marked(question="a<")
    assert list(split_trusted(marked)) == [(True, "<"), (False, "A<"), (True, "><"), (False, "A<"), (True, "> done")]


def test_a_set_that_does_not_fit_is_refused_in_words(tmp_path):
    with pytest.raises(ConfigError, match="neither one of default, tiny nor a directory"):
        load_prompts("tyni")
    with pytest.raises(ConfigError, match=r"has no file solver\.jinja"):
        load_prompts(tmp_path)["solver"]
    (tmp_path / "solver.jinja").write_text("{{ questoin }}")
    with pytest.raises(ConfigError, match=r"questoin.*variables format, question"):
        load_prompts(tmp_path)["solver"].marked(question="who ?", format="tags")
    (tmp_path / "solver.jinja").write_text("{% if %}")
    with pytest.raises(ConfigError, match="not valid Jinja"):
        load_prompts(tmp_path)["solver"]


def test_examples_come_from_the_file_beside_the_template_if_there_is_one(tmp_path):
    prompts = load_prompts(tmp_path)
    assert prompts.examples("proposer_answer") == []
    (tmp_path / "proposer_answer.examples.json").write_text('[{"question": "wer ißt?"}]', encoding="utf-8")
    assert prompts.examples("proposer_answer") == [{"question": "wer ißt?"}]
    assert prompts.examples("proposer_passage") == []


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        (b"[{", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"question": "who?"}', "not a list of JSON objects"),
        (b'["who?"]', "not a list of JSON objects"),
    ],
)
def test_examples_that_cannot_be_used_are_refused_with_the_remedy(tmp_path, content, phrase):
    path = tmp_path / "proposer_answer.examples.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{phrase}.*remove the file") as caught:
        load_prompts(tmp_path).examples("proposer_answer")
    assert str(path) in str(caught.value)
