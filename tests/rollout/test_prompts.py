import pytest
from tests.raising import raises

from evoseek.renderers.encoding import plain, split_trusted
from evoseek.rollout.prompts import load_prompts
from evoseek.types import Passage

PASSAGES = [Passage("a#0", "a", "Kalo", "Kalo 's mayor is Meri ."), Passage("b#0", "b", "Nida", "Nida is a city .")]


def test_the_tiny_prompts_are_bare():
    prompts = load_prompts("tiny")
    assert plain(prompts["solver"].marked(question="who ?", format="tags")) == "solve : who ?"
    assert prompts["observation"].text(passages=PASSAGES) == "Kalo 's mayor is Meri .\nNida is a city ."
    assert prompts["observation"].text(passages=[]) == "nothing found"


def test_the_default_prompt_explains_the_format_in_use():
    solver = load_prompts("default")["solver"]
    tags = plain(solver.marked(question="who ?", format="tags", max_calls=4))
    tools = plain(solver.marked(question="who ?", format="tools", max_calls=None))
    assert all(tag in tags for tag in ("<think>", "<search>", "</search>", "<information>", "<answer>"))
    assert "<search>" not in tools
    assert tags.endswith("Question: who ?")
    assert tools.endswith("Question: who ?")
    assert "at most 4 times." in tags
    assert "collection of documents.\n" in tools


@pytest.mark.parametrize("format", ["tags", "tools"])
@pytest.mark.parametrize("prompt", ["solver", "solver_web"])
def test_the_short_prompt_is_a_few_lines_with_format_and_budget(prompt, format):
    values = {"question": "who ?", "format": format, "max_calls": 4}
    short, full = (plain(load_prompts(name)[prompt].marked(**values)) for name in ("short", "default"))
    assert len(short.split()) < 0.65 * len(full.split())
    assert "4 " in short
    assert "4 times" in short or "4 calls in all" in short
    assert "1 times" not in plain(load_prompts("short")[prompt].marked(**values | {"max_calls": 1}))
    assert all((tag in short) == (format == "tags") for tag in ("<search>", "</search>", "<information>"))
    assert ("<browse>" in short) == (format == "tags" and prompt == "solver_web")
    assert "</answer>" in short
    assert short.endswith("\n\nQuestion: who ?")
    assert "\n\n\n" not in short


@pytest.mark.parametrize("format", ["tags", "tools"])
@pytest.mark.parametrize("prompt", ["proposer_passage", "proposer_answer"])
@pytest.mark.parametrize("searches", [0, 1, 2])
def test_the_short_proposers_prompts_are_a_few_lines_with_format_and_number_of_searches(prompt, format, searches):
    task = {"hops": searches + 1, "searches": searches, "title": "Kalo", "text": "Its mayor is Meri.", "answer": "Meri"}
    values = {**task, "examples": [], "format": format}
    short, full = (plain(load_prompts(name)[prompt].marked(**values)) for name in ("short", "default"))
    assert len(short.split()) < 0.5 * len(full.split())
    assert f"ake {searches} search{'' if searches == 1 else 'es'}" in short
    if prompt == "proposer_passage":
        assert short.startswith("A passage about Kalo:\nIts mayor is Meri.\n\nWrite a question ")
        assert f"in {searches + 1} step{'s' if searches else ''}. " in short
        assert ("the answer is in the passage." in short) == (searches == 0)
        unseen = plain(load_prompts("short")[prompt].marked(**values | {"text": "", "title": ""}))
        assert unseen.startswith("Choose a subject. Write a question ")
        assert "the passage" not in unseen
    searching = format == "tags" and (searches > 0 or prompt == "proposer_answer")
    assert all((tag in short) == searching for tag in ("<search>", "</search>", "<information>"))
    assert all(tag in short for tag in ("<think>", "<question>", "</question>", "<answer>", "</answer>"))
    assert "\n\n\n" not in short


@pytest.mark.parametrize("format", ["tags", "tools"])
def test_the_short_proposers_prompt_without_a_number_is_a_few_lines_too(format):
    values = {"title": "Kalo", "text": "Its mayor is Meri.", "format": format}
    short, full = (
        plain(load_prompts(name)["proposer_passage"].marked(**values, examples=[])) for name in ("short", "default")
    )
    assert len(short.split()) < 0.5 * len(full.split())
    assert short.startswith(
        "A passage about Kalo:\nIts mayor is Meri.\n\nWrite a question that begins with the subject "
    )
    assert " leads to its answer in one step or several, as you choose. " in short
    assert "the answer is in the passage" not in short
    assert short.endswith("inside <answer> and </answer>.")


@pytest.mark.parametrize("template", ["{% if searches %}search{% endif %}", "{{ hops }} hops", "{{ searches - 1 }}"])
def test_a_template_of_ones_own_that_needs_a_number_of_hops_is_refused_where_there_is_none(tmp_path, template):
    (tmp_path / "proposer_passage.jinja").write_text(template)
    own = load_prompts(tmp_path)["proposer_passage"]
    own.marked(hops=2, searches=1, title="", text="a", examples=[], format="tags")
    with raises("prompts.not_rendered", match=r"proposer_passage\.jinja .*: '(hops|searches)' is undef"):
        own.marked(title="", text="a", examples=[], format="tags")


def test_what_a_set_lacks_is_that_of_the_default_one(tmp_path):
    (tmp_path / "solver.jinja").write_text("{{ question }}")
    own, default = load_prompts(tmp_path), load_prompts("default")
    assert own["solver"].text(question="who ?") == "who ?"
    for prompts in (own, load_prompts("short")):
        assert prompts["observation"].text(passages=PASSAGES) == default["observation"].text(passages=PASSAGES)
    assert own.examples("proposer_passage") == default.examples("proposer_passage") != []
    assert own.path("solver") == tmp_path / "solver.jinja"
    assert own.path("reader") == default.directory / "reader.jinja"


def test_trap_no_prompt_holds_an_answer_that_a_model_could_repeat():
    """Small models repeated the example of an answer, and went on counting where the prompt ended in a number."""
    for name in ("default", "short"):
        prompts = load_prompts(name)
        for prompt in ("solver", "solver_web", "closed_book"):
            for format in ("tags", "tools"):
                text = plain(prompts[prompt].marked(question="who ?", format=format, max_calls=4))
                assert "<answer> and </answer>" in text
                assert text.count("<answer>") == 1
    values = {"hops": 3, "searches": 2, "title": "", "text": "a", "answer": "Meri", "examples": [], "format": "tags"}
    for prompt in ("proposer_passage", "proposer_answer"):
        assert not plain(load_prompts("default")[prompt].marked(**values))[-1].isdigit()
    text = plain(load_prompts("short")["proposer_passage"].marked(**values | {"text": "It came out in 1979"}))
    assert text.endswith("inside <answer> and </answer>.")
    assert load_prompts("short").examples("proposer_passage") == []


@pytest.mark.parametrize("name", ["default", "short"])
@pytest.mark.parametrize("format", ["tags", "tools"])
def test_closed_book_nothing_speaks_of_searching(name, format):
    text = plain(load_prompts(name)["closed_book"].marked(question="who ?", format=format, max_calls=4))
    told = plain(load_prompts(name).malformed("there is no <search>", role="solver", tools=[], format=format))
    for words in (text, told):
        assert not any(word in words.lower() for word in ("search", "look", "tool", "passage", "information"))
        assert "</answer>" in words
    assert text.endswith("Question: who ?")


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
    with raises("prompts.missing", match="neither one of default, short, tiny nor a directory"):
        load_prompts("tyni")
    with raises("prompts.missing"):
        load_prompts(tmp_path)
    (tmp_path / "reading.jinja").touch()
    with raises("prompts.no_prompt", match=r"no prompt solvr\.jinja, neither in"):
        load_prompts(tmp_path)["solvr"]
    (tmp_path / "solver.jinja").write_text("{{ questoin }}")
    with raises("prompts.not_rendered", match=r"questoin.*variables format, question"):
        load_prompts(tmp_path)["solver"].marked(question="who ?", format="tags")
    (tmp_path / "solver.jinja").write_text("{% if %}")
    with raises("prompts.not_jinja"):
        load_prompts(tmp_path)["solver"]


def test_examples_come_from_the_file_beside_the_template_if_there_is_one(tmp_path):
    (tmp_path / "proposer_answer.jinja").touch()
    (tmp_path / "proposer_passage.jinja").touch()
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
    (tmp_path / "proposer_answer.jinja").touch()
    with raises("prompts.examples", match=f"{phrase}.*remove the file") as caught:
        load_prompts(tmp_path).examples("proposer_answer")
    assert str(path) in str(caught.value)
