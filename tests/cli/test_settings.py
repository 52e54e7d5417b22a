"""What a command reads of its settings."""

import pytest

import evoseek.cli.main  # noqa: F401 - the commands are declared
from evoseek.cli.options import running
from evoseek.cli.settings import given_settings, training_run, training_settings
from evoseek.config.sections import changeable, read_settings
from evoseek.errors import ConfigError, RunError
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.runs import RunDirectory
from evoseek.types import Passage


def on_command_line(command, function, *words, config=(), sets=(), **named):
    """What a function of a command returns with these shared options."""
    with running(command, config=config, sets=sets):
        return function(*words, **named)


def given_to(command, sets, files=(), **options):
    fallback = {"propose": "dr-zero"}.get(command, "zerosearch" if command.startswith("simulator") else "search-r1")
    return on_command_line(command, given_settings, options, config=files, sets=sets, fallback=fallback)


@pytest.mark.parametrize(
    ("command", "given", "words"),
    [
        ("propose", ["answerer.model=x"], r"`evoseek propose` does not use it\. .* `evoseek ask`"),
        ("eval", ["learner.learning_rate=1.0"], "`evoseek simulator tune`"),
        ("ask", ["evaluation.limit=3"], "`evoseek ask` does not use it"),
        ("ask", ["web.provider=searxng"], "it is for deepresearcher"),
        ("eval", ["judge.model=x"], "reward.name to be judge"),
        ("propose", ["dr_zero.iterations=5"], "it is for `evoseek train`"),
        ("simulator tune", ["lora.alpha=3.0"], "lora.rank"),
        ("filter", ["search.top_k=2"], "`evoseek filter` does not use it"),
    ],
)
def test_what_a_command_does_not_use_is_refused(command, given, words):
    with pytest.raises(ConfigError, match=words):
        given_to(command, given)


@pytest.mark.parametrize(
    ("command", "given"),
    [
        ("eval", ["evaluation.limit=3", "evaluation.temperature=0.0"]),  # on the questions of questions.path
        ("ask", ["answerer.base_url=http://x", "answerer.concurrency=3", "answerer.model=x"]),
        ("filter", ["judge.model=x"]),
        ("simulator check", ["simulator.model=x"]),
    ],
)
def test_what_it_does_use_is_not(command, given, tmp_path):
    given_to(command, given)
    shared = tmp_path / "shared.toml"  # with other commands
    shared.write_text("[learner]\nwarmup_steps = 3\n")
    assert given_to(command, given, [shared]).read().learner.warmup_steps == 3


PROJECT = """
[project]
run = "run"

[search]
index = "index"

[questions]
path = "questions.jsonl"
per_step = 1

[run]
system = "search-r1"
max_minutes = 7.0

[learner]
learning_rate = 1e-4
"""


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """The run of a project, begun with `--set run.seed=5 --set learner.learning_rate=0.5 --steps 3`."""
    monkeypatch.chdir(tmp_path)
    LexicalIndex.build(tmp_path / "index", [Passage("p", "Kalo", "Kalo", "Kalo is a river")])
    (tmp_path / "questions.jsonl").write_text('{"question": "What is Kalo?", "golden_answers": ["a river"]}\n')
    (tmp_path / "evoseek.toml").write_text(PROJECT)
    claim(trained("run.seed=5", "learner.learning_rate=0.5", **{"run.steps": 3}))
    return tmp_path


def trained(*sets, **options):
    return on_command_line("train", training_settings, options, training_run(None), sets=sets, is_of_project=True)


def claim(given):
    settings, run = given.read(), RunDirectory(training_run(None), given.of_project)
    run.path.mkdir(exist_ok=True)
    defaults = read_settings(type(settings), {"run": {"system": "search-r1"}}).resolved()
    run.claim(settings.resolved(), may_differ=changeable(settings, "on_resume"), defaults=defaults)
    (run.path / "checkpoints" / "step-000001").mkdir(parents=True, exist_ok=True)
    return settings


def edit(folder, old, new):
    file = folder / "evoseek.toml"
    file.write_text(file.read_text().replace(old, new))


def test_the_run_of_a_project_resumes_without_its_options_repeated(begun, capsys):
    settings = claim(trained())
    assert (settings.run.seed, settings.learner.learning_rate, settings.run.steps) == (5, 0.5, 3)
    assert "keeps the settings with which it was begun\n" in capsys.readouterr().err
    assert claim(trained(**{"run.steps": 9})).run.steps == 9
    assert claim(trained()).run.steps == 9


def test_what_was_edited_in_the_project_since_is_used_or_refused(begun, capsys):
    edit(begun, "max_minutes = 7.0", "steps = 12")  # one goes back to its default, the other is new
    settings = claim(trained())
    assert (settings.run.steps, settings.run.max_minutes, settings.run.seed) == (12, None, 5)
    assert "edited since: run.steps = 12, run.max_minutes = None" in " ".join(capsys.readouterr().err.split())
    edit(begun, "learning_rate = 1e-4", "learning_rate = 2e-4")
    with pytest.raises(ConfigError, match=r"learner\.learning_rate was 0\.5, now 0\.0002\. Restore these settings"):
        claim(trained())


def test_a_project_that_names_no_system_is_compared_as_well(begun):
    edit(begun, 'system = "search-r1"\n', "")
    assert claim(trained()).learner.learning_rate == 0.5
    edit(begun, "learning_rate = 1e-4", "learning_rate = 2e-4")
    with pytest.raises(ConfigError, match=r"learner\.learning_rate was 0\.5, now 0\.0002"):
        claim(trained())


def test_another_system_in_the_project_is_not_ignored(begun):
    edit(begun, 'system = "search-r1"', 'system = "dspo"')
    with pytest.raises(ConfigError, match=r"run\.system was 'search-r1', now 'dspo'"):
        claim(trained())


def test_a_damaged_record_of_the_project_names_the_way_on(begun):
    (begun / "run" / "project.json").write_text("[")
    with pytest.raises(RunError, match=r"evoseek train --run-dir .*run`"):
        trained()


def test_the_test_set_of_a_project_is_used_from_its_first_day_and_feedback_by_new_runs_alone(begun):
    for name in ("reviewed", "feedback"):
        (begun / f"{name}.jsonl").touch()
    settings = claim(trained())
    assert (settings.evaluation.reviewed, settings.questions.feedback) == (f"{begun}/reviewed.jsonl", "")
    assert claim(trained("evaluation.reviewed=")).evaluation.reviewed == ""
    (begun / "other.jsonl").touch()
    assert claim(trained("evaluation.reviewed=other.jsonl")).evaluation.reviewed == "other.jsonl"
    assert claim(trained()).evaluation.reviewed == "other.jsonl"  # as long as there is such a file
    (begun / "other.jsonl").unlink()
    assert claim(trained()).evaluation.reviewed == f"{begun}/reviewed.jsonl"
    new = training_settings({}, begun / "new").read()
    assert (new.evaluation.reviewed, new.questions.feedback) == tuple(
        f"{begun}/{name}.jsonl" for name in ("reviewed", "feedback")
    )


def test_what_the_project_file_names_goes_before_files_of_the_usual_names(begun):
    for name in ("reviewed.jsonl", "feedback.jsonl", "mine.jsonl"):
        (begun / name).touch()
    edit(begun, "[search]", '[evaluation]\nreviewed = "mine.jsonl"\n\n[search]')
    edit(begun, "[questions]", '[questions]\nfeedback = ""')
    new = training_settings({}, begun / "new").read()
    assert (new.evaluation.reviewed, new.questions.feedback) == (f"{begun}/mine.jsonl", "")
