"""What a run reads is known by what it holds: each kind of input, moved and changed."""

import shutil

import pytest
from tests.raising import raises
from tests.search.spelling import LetterEncoder

from evoseek.assembly.inputs import inputs_of, keep_feedback, training_questions
from evoseek.assembly.sources import load_settings
from evoseek.config.sections import lookup
from evoseek.errors import ConfigError
from evoseek.models.load import load_policy, save_policy
from evoseek.models.lora import add_adapter
from evoseek.models.source import tiny_policy_dir
from evoseek.questions.feedback import Feedback, FeedbackFile
from evoseek.questions.questions import save_questions
from evoseek.search.dense import DenseIndex
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.types import Passage, Question

SYSTEMS = ("zerosearch", "deepresearcher", "ssp")


@pytest.fixture
def settings(tmp_path):
    """Every setting that names something to be read, by its key."""
    at = tmp_path / "here"
    LexicalIndex.build(at / "index", [Passage("a#0", "a", "Kalo", "a city", 0, 6)])
    LexicalIndex.build(at / "held-out", [Passage("b#0", "b", "Meri", "a river", 0, 7)])
    for name in ("q.jsonl", "e.jsonl"):
        save_questions(at / name, [Question(name, "who ?", ("Kalo",))])
    (at / "answers.jsonl").write_text('{"answer": "Kalo"}\n')
    (at / "world.json").write_text('{"seed": 0}')
    (at / "prompts").mkdir()
    (at / "prompts" / "solver.jinja").write_text("{{ question }}")
    for name in ("model", "judge", "simulator", "reader"):
        (at / name).mkdir()
        (at / name / "config.json").write_text("{}")
        (at / name / "model.safetensors").write_bytes(b"weights")
    return {
        "search.index": "index",
        "evaluation.index": "held-out",
        "questions.path": "q.jsonl",
        "evaluation.path": "e.jsonl",
        "ssp.answers": "answers.jsonl",
        "selfplay.world": "world.json",
        "policy.model": "model",
        "policy.prompts": "prompts",
        "judge.model": "judge",
        "simulator.model": "simulator",
        "reader.model": "reader",
    }


def of(system, settings):
    """Those of the settings that a system has."""
    defaults = load_settings(system=system)
    return {key: name for key, name in settings.items() if lookup(defaults, key) is not None}


def config_at(settings, folder, system="search-r1"):
    return load_settings(system=system, options={key: str(folder / name) for key, name in settings.items()})


def claim(run, config):
    run.claim(config.resolved(), inputs_of(config))


def change(path):
    if (path / "manifest.json").exists():
        LexicalIndex.build(path, [Passage("a#0", "a", "Kalo", "a town", 0, 6)])
        return
    if path.is_dir():
        path = next(path / name for name in ("model.safetensors", "solver.jinja") if (path / name).exists())
    path.write_bytes(path.read_bytes() + b" ")


def test_every_input_is_that_of_a_system(settings):
    assert {key for system in SYSTEMS for key in of(system, settings)} == settings.keys()


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_input_may_be_moved_and_spelt_anew_but_not_changed(system, settings, tmp_path, monkeypatch):
    run, settings = RunDirectory(tmp_path / "run"), of(system, settings)
    with run.locked():
        claim(run, config_at(settings, tmp_path / "here", system))
    (run.path / "checkpoints" / "step-000001").mkdir(parents=True)
    assert inputs_of(config_at(settings, tmp_path / "here", system)).keys() == settings.keys()
    (tmp_path / "here").rename(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    spelt_anew = {key: f"./there/../there/{name}" for key, name in settings.items()}
    claim(run, load_settings(system=system, options=spelt_anew))
    for key, name in settings.items():
        shutil.copytree(tmp_path / "there", tmp_path / "copy")
        change(tmp_path / "copy" / name)
        with raises("run.other_inputs", match=f"{key} was .*/{name} .SHA-256 .*, now .*copy/{name} "):
            claim(run, config_at(settings, tmp_path / "copy", system))
        shutil.rmtree(tmp_path / "copy")


def test_an_index_that_was_built_again_from_the_same_passages_is_the_same(settings, tmp_path):
    config = config_at(of("search-r1", settings), tmp_path / "here")
    before = inputs_of(config)
    LexicalIndex.build(tmp_path / "here" / "index", [Passage("a#0", "a", "Kalo", "a city", 0, 6)])
    assert inputs_of(config) == before


def test_the_engine_that_an_index_was_built_for_counts_where_it_is_searched_by_that(tmp_path):
    """And nothing else does: an older run that names its engine goes on, whatever the index was built for since."""

    def known(engine, name):
        DenseIndex.build(tmp_path / "i", [Passage("a", "", "Kalo", "a")], LetterEncoder(), engine=engine)
        options = {"search.index": str(tmp_path / "i"), "search.name": name}
        return inputs_of(load_settings(options=options))["search.index"].sha256

    assert known("dense", "auto") != known("hybrid", "auto")
    assert (
        known("dense", "lexical") == known("hybrid", "lexical") == LexicalIndex.open(tmp_path / "i").manifest.identity
    )


def test_a_policy_that_comes_with_the_package_is_its_directory():
    found = inputs_of(load_settings(options={"policy.prompts": "tiny"}))
    assert found["policy.model"].path == str(tiny_policy_dir())
    assert found["policy.prompts"].path.endswith("tiny")


def test_names_of_the_hub_and_of_endpoints_have_no_contents_here():
    options = {"policy.model": "nobody/nothing", "judge.model": "gpt", "judge.base_url": "http://localhost:1/v1"}
    assert inputs_of(load_settings(options=options)) == {}


def test_an_adapter_is_known_by_its_base_too(tmp_path):
    save_policy(load_policy("tiny"), tmp_path / "base")
    policy = load_policy(str(tmp_path / "base"))
    adapted = add_adapter(policy, "policy", rank=2, alpha=4.0, seed=0)
    save_policy(adapted, tmp_path / "adapter")
    config = load_settings(options={"policy.model": str(tmp_path / "adapter")})
    before = inputs_of(config)
    path = tmp_path / "base" / "tokenizer_config.json"
    path.write_text(path.read_text() + " ")
    assert inputs_of(config) != before


def test_what_cannot_be_read_is_said(tmp_path):
    with pytest.raises(ConfigError, match=r"questions\.path is .*none\.jsonl, which cannot be read"):
        inputs_of(load_settings(options={"questions.path": str(tmp_path / "none.jsonl")}))
    with raises("index.missing", match="no search index"):
        inputs_of(load_settings(options={"search.index": str(tmp_path)}))


def test_what_a_cold_start_held_out_is_not_trained_on_because_people_judged_it(settings, tmp_path):
    run, file = RunDirectory(tmp_path / "run"), FeedbackFile(tmp_path / "feedback.jsonl")
    run.held_out.parent.mkdir(parents=True)
    save_questions(run.held_out, [Question("h", "Who rules Kalo?", ("Meri",))])
    file.add(Feedback("a", "2026-01-01T00:00:00Z", "who rules  Kalo", "Meri", "right"))
    file.add(Feedback("b", "2026-01-01T00:00:00Z", "Who rules Vesu?", "Tor", "right"))
    paths = {"questions.path": str(tmp_path / "here" / "q.jsonl"), "questions.feedback": str(file.path)}
    asked, said = training_questions(load_settings(system="search-r1", options=paths), run)
    assert [question.text for question in asked] == ["who ?", "Who rules Vesu?"]
    assert f"1 are added from the feedback in {file.path}; 1 others are not" in said
    run.held_out.write_text("")
    assert len(training_questions(load_settings(system="search-r1", options=paths), run)[0]) == 3


def test_the_right_answer_that_a_person_names_takes_the_place_of_a_label(tmp_path):
    def said(id, question, answer, verdict, right_answer=""):
        file.add(Feedback(id, "2026-01-01T00:00:00Z", question, answer, verdict, right_answer))

    path, file = tmp_path / "q.jsonl", FeedbackFile(tmp_path / "feedback.jsonl")
    hidden = {"answerable": False, "hidden": ["vesu.md"], "hops": 1}
    save_questions(
        path,
        [
            Question("a", "Who rules Kalo?", ("Meri",), {"evidence": ["kalo#0"], "hops": 2}),
            Question("b", "Who rules Vesu?", (), hidden),
            Question("c", "Who rules Tolu?", ("Tor", "Tor II"), {"hops": 1}),
            Question("d", "Who rules Ramo?", ("Ada",)),
            Question("e", "Who rules Sile?", ("Bo",)),
        ],
    )
    said("1", "who rules  Kalo", "Meri", "wrong", "Lina")
    said("2", "Who rules Kalo?", "Lina", "right")  # the next policy, which has learnt it
    said("3", "Who rules Vesu?", None, "wrong", "Nils")
    said("4", "Who rules Tolu?", "Ada", "wrong", "tor")  # as the label
    said("5", "Who rules Ramo?", "Queen Ada", "right")  # which corrects nothing
    said("6", "Who rules Sile?", "Bo", "wrong", "Not found in the documents.")
    options = {"questions.path": str(path), "questions.feedback": str(file.path)}
    settings, run = load_settings(system="search-r1", options=options), RunDirectory(tmp_path / "run")
    asked, words = training_questions(settings)
    people = {"source": "feedback", "corrected": True}
    assert [(one.id, one.golden_answers, one.metadata) for one in asked] == [
        ("a", ("Lina",), {"hops": 2, **people}),
        ("b", ("Nils",), {"hops": 1, **people}),
        ("c", ("Tor", "Tor II"), {"hops": 1}),
        ("d", ("Ada",), {}),
        ("e", (), {**people, "answerable": False}),
    ]
    assert "0 are added from the feedback in" in words
    assert "; 3 have the answer that it corrects; 3 others are not, since they are there already" in words
    run.path.mkdir()
    keep_feedback(settings, run)
    file.delete(["1", "2", "3", "4", "5", "6"])
    assert training_questions(settings, run) == (asked, words)  # also where it is resumed
