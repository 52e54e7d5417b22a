"""What a new user gets wrong, through the command line: the status, what is said, no traceback, and no torch, which
takes long to load. And what `--json` and `--version` print."""

import json

import pytest

from evoseek import __version__
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage

TRAIN = "train --run-dir run --index my-index --questions questions.jsonl"

MISTAKES = {
    "train x --run-dir run": "There is no system 'x'. Choose one of search-r1, dspo,",
    "train serch-r1 --run-dir run": "There is no system 'serch-r1'. Did you mean search-r1?",
    "trian --run-dir run": "No such command 'trian'",
    "train --questions questions.jsonl": "Missing option '--run-dir'",
    "train --run-dir run": "run holds no run to resume: it has no config.json.",
    "train --run-dir runs/mins": "Did you mean runs/mine?",
    "train --run-dir docs --index my-index": "docs cannot be a run directory: it holds a.txt",
    "train --run-dir run --index my-index": "No questions were given. Set questions.path",
    "train --run-dir run --questions questions.jsonl": "No index was given: set search.index",
    f"{TRAIN} --questions question.jsonl": "No such file or directory). Did you mean questions.jsonl?",
    f"{TRAIN} --questions bad.jsonl": "bad.jsonl:2: The question has no golden answer.",
    f"{TRAIN} --index my-indx": "There is no folder my-indx. Did you mean my-index?",
    f"{TRAIN} --index docs": "There is no search index in docs",
    f"{TRAIN} --model ./modle": "there is no such directory or GGUF file. Did you mean model?",
    f"{TRAIN} --model ~no-such-user/m": "The path ~no-such-user/m begins with a home folder that is not known",
    f"{TRAIN} --index ~no-such-user/i": "There is no folder ~no-such-user/i.",
    f"{TRAIN} --questions ~no-such-user/q": "question file ~no-such-user/q cannot be read",
    f"{TRAIN} --config recipe.tml": "There is no config file and no recipe 'recipe.tml'. Did you mean recipe.toml?",
    f"{TRAIN} --config bad.toml": "bad.toml cannot be read: Expected ']' at the end of a table",
    f"{TRAIN} --set learner.learning_rat=1": "unknown setting learner.learning_rat (did you mean "
    "learner.learning_rate?)",
    f"{TRAIN} --set run.steps": "--set got 'run.steps', expected key=value",
    f"{TRAIN} --set learner.learning_rate=fast": "learner.learning_rate is 'fast'",
    f"{TRAIN} --steps 0": "run.steps is 0: input should be greater than or equal to 1",
    f"{TRAIN} --set critic.warmup_steps=3": "critic.warmup_steps is set, but it has no effect here: it needs "
    "credit.name to be gae, and that is 'group'. Leave critic.warmup_steps out, or set credit.name so.",
    f"{TRAIN} --set simulator.model=x": "unknown setting simulator (it is for zerosearch)",
    f"{TRAIN} --set evaluation.every=5": "evaluation.every is set, but it has no effect here: it needs evaluation.path",
    f"{TRAIN.replace('train', 'train dr-zero')}": "unknown setting questions.path (it is for search-r1",
    "sft --run-dir run --index my-index": "No demonstrations were given. Set demonstrations.path (--demonstrations)",
    "sft --run-dir run --index my-index --demonstrations question.jsonl": "The demonstration file question.jsonl "
    "cannot be read (cannot be read: No such file or directory). Did you mean questions.jsonl?",
    "sft --run-dir run --index my-index --demonstrations questions.jsonl": "questions.jsonl:1: turns: Field required. "
    "Expected a question with turns: each with a `query`, the last one with an `answer`",
    "sft --run-dir run --demonstrations d.jsonl --set loss.name=reinforce": "loss.name is set, but it has no effect "
    "here. Demonstrations are learnt by the cross-entropy of their tokens, without rewards.",
    "eval --index my-index": "No questions were given. Set evaluation.path (--questions)",
    "propose my-index out.jsonl --set answerer.model=x": "answerer.model was given with --set, but "
    "`evoseek propose` does not use it. Leave it out; it is for `evoseek ask`, `evoseek eval`, "
    "`evoseek collect`, `evoseek serve agent`, `evoseek serve mcp`.",
    "eval --index my-index --questions questions.jsonl --model tiny --set answerer.model=x": "--model names the policy "
    "tiny, and [answerer] the model x, but only one can answer.",
    "eval --run-dir docs": "docs holds no checkpoint.",
    "ask why?": "No index was given: set --index",
    "ask |": "The question is empty.",
    "ask why? --index my-index --set rollout.temperatur=1": "did you mean rollout.temperature?",
    "search my-index |": "The query is empty. Give the words to search for.",
    "search my-indx kalo": "There is no folder my-indx. Did you mean my-index?",
    "index doc new-index": "There is no corpus at doc. Did you mean docs?",
    "export ./modle out": "there is no such directory or GGUF file. Did you mean model?",
    "eval --check-judge bad.jsonl": "bad.jsonl:1:",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder as a new user has it."""
    folder = tmp_path_factory.mktemp("here")
    row = {"question": "who is it?", "golden_answers": ["Meri"]}
    for name in ("docs", "model", "runs/mine"):
        (folder / name).mkdir(parents=True)
    (folder / "docs" / "a.txt").write_text("The mayor of Kalo is Meri.")
    (folder / "questions.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "bad.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({"question": "who?"}) + "\n")
    (folder / "recipe.toml").write_text("[run]\nsteps = 1\n")
    (folder / "bad.toml").write_text("[run\n")
    LexicalIndex.build(folder / "my-index", [Passage("a#0", "a", "Kalo", "The mayor of Kalo is Meri. ☃")])
    return folder


@pytest.fixture(scope="module")
def evoseek(here, fork_server):
    """`evoseek(line)`: status, stdout, and stderr in one line, of a command that did not load torch. A `|` stands for
    an empty word."""
    server = fork_server()

    def run(line):
        command = server.start(*("" if word == "|" else word for word in line.split()), folder=here, apart=True)
        (status,) = command.wait()
        assert not command.torch
        return status, command.said("out"), " ".join(command.said("err").split())

    return run


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_at_once(evoseek, here, line):
    status, out, err = evoseek(line)
    assert status == 2
    assert MISTAKES[line] in err
    assert "Traceback" not in err
    assert "bug" not in err
    assert out == ""
    assert not (here / "run").exists()


@pytest.mark.parametrize("line", ["-h", "--help", "train -h", "simulator tune --help"])
def test_help_is_plain_and_loads_no_torch(evoseek, line):
    status, out, err = evoseek(line)
    assert (status, err) == (0, "")
    assert out.startswith("Usage: ")


def test_the_version(evoseek):
    assert evoseek("--version")[:2] == (0, f"evoseek {__version__}\n")


def test_a_search_as_json_has_stdout_for_itself(evoseek):
    status, out, err = evoseek("search my-index mayor --json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["query"] == "mayor"
    assert [(p["id"], p["title"], p["text"]) for p in found["passages"]] == [
        ("a#0", "Kalo", "The mayor of Kalo is Meri. ☃")
    ]
    assert found["passages"][0]["score"] > 0
