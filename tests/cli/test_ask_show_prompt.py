"""`evoseek ask --show-prompt`, with models of which only the tokenizer is there."""

import json
import shutil

import pytest

from evoseek.cli.main import main
from evoseek.models.source import tiny_policy_dir
from evoseek.rollout.prompts import load_prompts


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model without weights and without prompts of its own, whose tokenizer has a chat template."""
    directory = tmp_path_factory.mktemp("model") / "chatty"
    shutil.copytree(tiny_policy_dir(), directory, ignore=shutil.ignore_patterns("*.safetensors", "README*"))
    config = json.loads((directory / "config.json").read_text())
    del config["evoseek_prompts"]
    (directory / "config.json").write_text(json.dumps(config))
    template = "{% for m in messages %}<think>{{ m.role }}\n{{ m.content }}</think>\n{% endfor %}<answer>"
    (directory / "chat_template.jinja").write_text(template)
    return str(directory)


@pytest.fixture
def prompt(capsys, monkeypatch):
    """`evoseek ask TEXT --show-prompt ROLE ...`: (exit status, stdout, stderr)."""

    def prompt(text, *words, role="solver"):
        monkeypatch.setattr("sys.argv", ["evoseek", "ask", text, "--show-prompt", role, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return prompt


def test_shows_text_tokens_and_file_without_loading_weights(prompt, model):
    sets = ("--set", "policy.prompts=short", "--set", "environment.name=solver")
    status, out, _ = prompt("who wrote dune ?", "--model", model, *sets, "--json")
    shown = json.loads(out)
    assert status == 0
    assert (shown["system"], shown["role"], shown["format"]) == ("search-r1", "solver", "tags")
    assert shown["template"] == str(load_prompts("short").directory / "solver.jinja")
    assert shown["text"].startswith("<think>")
    assert shown["text"].endswith("<answer>")
    assert shown["tokens"] == len(shown["token_ids"]) > 50
    assert "4 times" in shown["text"]  # calls, which follow the model


def test_an_untrained_model_is_shown_a_passage_first(prompt, model):
    shown = json.loads(prompt("who wrote dune ?", "--model", model, "--json")[1])
    assert shown["template"] == str(load_prompts("default").directory / "search_first.jinja")
    assert "[ 1 ] kalo kalo is a city" in shown["text"]
    assert "<search>" not in shown["text"]  # a small model is offered no search of its own


def test_the_tiny_policy_is_asked_in_its_words_in_every_role(prompt, tmp_path):
    out, question = prompt("who is kalo ?")[1], "solve : who is kalo ?"
    assert "tiny as solver of search-r1: 8 tokens, format tags." in out
    assert "set policy.prompts to the copy" in " ".join(out.split())
    assert out.splitlines()[-1] == question
    assert prompt("who is kalo ?", role="closed-book")[1].splitlines()[-1] == question
    assert prompt("who is kalo ?", role="reader")[1].splitlines()[-1].startswith("read : who is kalo ?")

    def proposer(text, *words):
        return prompt(text, *words, role="proposer")[1].splitlines()[-1]

    assert proposer("kalo .", "--config", "dr-zero/tiny") == "propose 2 hops : kalo ."
    (tmp_path / "free.toml").write_text("[proposer]\nratio = []\n")
    free = proposer("kalo .", "--config", "dr-zero/tiny", "--config", str(tmp_path / "free.toml"))
    assert free == "propose hops : kalo ."
    assert "kalo" in proposer("kalo", "--config", "ssp/tiny")


def test_the_model_of_answerer_is_shown_its_messages(prompt):
    endpoint = ("--set", "answerer.model=big", "--set", "answerer.base_url=http://127.0.0.1:1")
    shown = json.loads(prompt("who wrote dune ?", *endpoint, "--json")[1])
    assert (shown["model"], shown["format"], shown["tokens"], shown["token_ids"]) == ("big", "messages", 0, [])
    assert shown["template"] == str(load_prompts("default").directory / "search_first.jinja")
    assert "Kalo is a city." in shown["text"]
    assert "user: " in shown["text"]
    assert "who wrote dune ?" in shown["text"]
    out = prompt("who wrote dune ?", *endpoint, role="closed-book")[1]
    assert "big as closed-book of search-r1: sent as messages." in out
    assert prompt("who?", *endpoint, role="reader")[1].splitlines()[-1].startswith("read : who ?")  # the policy reads


def test_closed_book_nothing_is_said_of_searching(prompt, model):
    shown = json.loads(prompt("who wrote dune ?", "--model", model, "--json", role="closed-book")[1])
    assert (shown["role"], shown["template"].rpartition("/")[2]) == ("closed-book", "closed_book.jinja")
    assert "search" not in shown["text"]


def test_tools_need_neither_index_nor_web(prompt, model):
    status, out, _ = prompt("who?", "--config", "deepresearcher/tiny", "--model", model)
    assert status == 0
    assert "solver_web.jinja" in out


@pytest.mark.parametrize(
    ("role", "words", "phrase"),
    [
        ("proposer", (), "search-r1 has no proposer. Name a self-play system: dr-zero or ssp."),
        ("solver", ("--set", "policy.prompts=shrot"), "neither one of default, short, tiny"),
        ("solver", ("--model", "./nowhere"), "there is no such directory"),
    ],
)
def test_mistakes_are_told(prompt, role, words, phrase):
    status, _, err = prompt("who?", *words, role=role)
    assert status == 2
    assert phrase in " ".join(err.split())
