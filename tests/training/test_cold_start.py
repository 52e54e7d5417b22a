"""The cold start of a run."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from evoseek.assembly.inputs import inputs_of
from evoseek.assembly.settings import TrainingSettings
from evoseek.assembly.sources import load_settings
from evoseek.config.sections import check_effect, check_settings, is_given, lookup, with_setting
from evoseek.errors import ConfigError, DataError, PolicyError, RunError, RunLockedError
from evoseek.questions.demonstrations import Demonstration, ProposerDemonstration, load_demonstrations
from evoseek.questions.questions import load_questions
from evoseek.questions.writers.base import Draft, Hop
from evoseek.questions.writers.checking import STATED_IN, Item
from evoseek.run import Run
from evoseek.search.lexical import LexicalIndex
from evoseek.storage.files import json_digest
from evoseek.storage.runs import RunDirectory
from evoseek.training.cold_start import TIMES, ColdStart, cold_start, held_apart
from evoseek.types import Passage, Question
from evoseek.world.world import World

QUIET = Console(quiet=True)


def index_of(folder: Path, *texts: str) -> Path:
    LexicalIndex.build(folder, [Passage(f"d#{n}", "d", "Marlow", text) for n, text in enumerate(texts)])
    return folder


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "index"
    LexicalIndex.build(folder, World.generate(0, 200, "train").passages())
    return folder


def settings(index: Path, system: str = "search-r1", **sets: object) -> TrainingSettings:
    options = {"search.index": str(index), "cold_start.questions": 60, **sets}
    return load_settings(system=system, options=options)


class Learner:
    """Stands for the run that learns the demonstrations: it notes its settings, and is ended early the first time."""

    def __init__(self) -> None:
        self.given: list[Mapping[str, object]] = []

    def __call__(self, directory: Path, given: Mapping[str, object]) -> bool:
        self.given.append(given)
        return len(self.given) > 1


def test_a_run_trains_on_what_was_written_the_policy_that_learnt_the_demonstrations(index: Path, tmp_path: Path):
    run, learner = RunDirectory(tmp_path / "run"), Learner()
    assert cold_start(settings(index), run, console=QUIET, learn=learner) is None
    files = ColdStart(run.path / "cold_start")
    before = {path: path.read_bytes() for path in files.folder.iterdir()}
    after = cold_start(settings(index), run, console=QUIET, learn=learner)
    assert {path: path.read_bytes() for path in files.folder.iterdir()} == before  # written once
    assert after is not None
    assert lookup(after, "policy.model") == str(files.model)
    assert lookup(after, "questions.path") == str(files.questions)
    assert learner.given[0] == learner.given[1]
    assert learner.given[0]["demonstrations.path"] == str(files.demonstrations)
    assert learner.given[0]["policy.model"] == "tiny"


def test_what_is_searched_for_its_question_first_learns_no_demonstrations(index: Path, tmp_path: Path):
    run, learner = RunDirectory(tmp_path / "run"), Learner()
    given = settings(index, **{"environment.name": "search_first"})
    after = cold_start(given, run, console=QUIET, learn=learner)
    files = ColdStart(run.path / "cold_start")
    assert after == with_setting(given, "questions.path", str(files.questions.absolute()))
    assert load_questions(files.questions)
    assert learner.given == []
    before = files.questions.read_bytes()
    assert cold_start(given, run, console=QUIET, learn=learner) == after
    assert files.questions.read_bytes() == before
    own = settings(index, **{"environment.name": "search_first", "questions.path": str(files.questions)})
    elsewhere = RunDirectory(tmp_path / "other")
    assert cold_start(own, elsewhere, console=QUIET, learn=learner) == own
    assert not elsewhere.path.exists()  # neither questions nor demonstrations are wanted


def test_a_model_that_is_not_there_is_named_before_anything_is_written(index: Path, tmp_path: Path):
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(PolicyError, match="nowhere"):
        cold_start(settings(index, **{"policy.model": "./nowhere"}), run, console=QUIET, learn=Learner())
    assert not run.path.exists()


def test_a_cold_start_that_was_made_is_made_no_second_time(index: Path, tmp_path: Path):
    run, learner = RunDirectory(tmp_path / "run"), Learner()
    cold_start(settings(index), run, console=QUIET, learn=learner)
    after = cold_start(settings(index), run, console=QUIET, learn=learner)
    assert after is not None
    assert cold_start(after, run, console=QUIET, learn=learner) == after
    assert len(learner.given) == 2
    assert ColdStart(run.path / "cold_start").writing_seconds > 0


def test_of_two_questions_one_is_learnt_and_one_is_held_out(tmp_path: Path):
    few = index_of(tmp_path / "index", "Marlow was founded by Ines Oduya.", "Marlow was rebuilt by Tom Ark.")
    assert (
        cold_start(
            settings(few, **{"cold_start.questions": 2}), RunDirectory(tmp_path / "run"), console=QUIET, learn=Learner()
        )
        is None
    )
    files = ColdStart(tmp_path / "run" / "cold_start")
    assert [len(load_questions(path)) for path in (files.held_out, files.questions)] == [1, 1]
    assert len(load_demonstrations(files.demonstrations)) == TIMES


def test_questions_of_one_passage_are_not_parted_by_the_hold_out(index: Path, tmp_path: Path):
    """One of them says the answer of the other."""
    cold_start(settings(index), RunDirectory(tmp_path), console=QUIET, learn=Learner())
    files = ColdStart(tmp_path / "cold_start")
    held, trained = (
        {passage for question in load_questions(path) for passage in question.metadata.get("evidence", ())}
        for path in (files.held_out, files.questions)
    )
    assert held
    assert not held & trained


def item(text: str, *passages: str, key: str = "evidence") -> Item:
    return Item(Demonstration(Question("", text, (), {key: list(passages)}), ()))


def parted(held: list[Item], trained: list[Item]) -> bool:
    return not {one.question.text[0] for one in held} & {one.question.text[0] for one in trained}


def test_each_question_is_as_likely_to_be_held_out_as_any_other():
    """Also if it hangs together with others: by the first of its members, a group would come too early."""
    groups = [item(f"{number}/{member}", f"p{number}") for number in range(40) for member in range(5)]
    items = [*groups, *(item(f"alone {number}") for number in range(200))]
    rng, held = random.Random(0), Counter[bool]()
    for _ in range(100):
        rng.shuffle(items)
        held.update("/" in one.question.text for one in held_apart(items, 40)[1])
    assert held.total() == 4000
    assert 0.45 < held[True] / 4000 < 0.55  # by the first of them: .82


@pytest.mark.parametrize("order", range(8))
def test_questions_of_a_second_passage_in_common_stay_together(order: int):
    items = [item("a1", "p", "q"), item("a2", "r", "q"), *(item(f"{n}", f"s{n}") for n in range(2, 10))]
    random.Random(order).shuffle(items)
    assert parted(*held_apart(items, 2))


@pytest.mark.parametrize("order", range(8))
def test_a_question_whose_document_is_hidden_stays_with_the_others_of_its_statement(order: int):
    """It says the answer of one of them, though it has no evidence."""
    items = [item("a1", "p"), item("a2", "p", key=STATED_IN), *(item(f"{n}", f"s{n}") for n in range(2, 10))]
    random.Random(order).shuffle(items)
    assert parted(*held_apart(items, 2))


def test_where_too_much_hangs_together_the_hold_out_is_full_all_the_same():
    items = [*(item(f"a{number}", "p") for number in range(9)), item("b")]
    trained, held = held_apart(items, 3)
    assert (len(trained), len(held)) == (7, 3)
    assert {one.question.text for one in (*trained, *held)} == {one.question.text for one in items}


def test_a_stage_that_finds_no_question_is_told_before_anything_is_learnt(index: Path, tmp_path: Path):
    stage = {"name": "odd", "steps": 1, "questions": {"balance_by": "kind", "shares": {"nothing": 1}}}
    stages = [stage, {"name": "all"}]
    learner = Learner()
    with pytest.raises(ConfigError, match="In the stage odd: A step draws"):
        cold_start(settings(index, stages=stages), RunDirectory(tmp_path), console=QUIET, learn=learner)
    assert learner.given == []


def test_one_question_is_too_few(tmp_path: Path):
    one = index_of(tmp_path / "index", "Marlow was founded by Ines Oduya.")
    with pytest.raises(DataError, match=r"gave one question.*needs two"):
        cold_start(settings(one), RunDirectory(tmp_path / "run"), console=QUIET, learn=Learner())
    assert not ColdStart(tmp_path / "run" / "cold_start").report.exists()


def test_held_out_questions_are_neither_demonstrated_nor_trained_on(index: Path, tmp_path: Path):
    cold_start(settings(index), RunDirectory(tmp_path), console=QUIET, learn=Learner())
    files = ColdStart(tmp_path / "cold_start")
    held, trained = ({question.text for question in load_questions(path)} for path in (files.held_out, files.questions))
    shown = [one.question.text for one in load_demonstrations(files.demonstrations)]  # pyright: ignore[reportAttributeAccessIssue]
    assert (len(held), len(trained), len(shown)) == (6, 54, TIMES * 54)
    assert not held & trained
    assert Counter(shown) == dict.fromkeys(trained, TIMES)


@pytest.mark.parametrize(("most", "once", "twice"), [(40, 40, 0), (54, 54, 0), (60, 48, 6)])
def test_no_more_is_demonstrated_than_is_learnt(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, once: int, twice: int
):
    monkeypatch.setattr("evoseek.training.cold_start.DEMONSTRATIONS", most)
    cold_start(settings(index), RunDirectory(tmp_path), console=QUIET, learn=Learner())
    made = load_demonstrations(ColdStart(tmp_path / "cold_start").demonstrations)
    times = Counter(Counter(one.question.text for one in made).values())  # pyright: ignore[reportAttributeAccessIssue]
    assert (times[1], times[2]) == (once, twice)


def test_demonstrations_of_the_test_set_are_left_out_by_the_run_that_learns_them(index: Path, tmp_path: Path):
    learner = Learner()
    cold_start(
        settings(index, **{"evaluation.reviewed": "mine.jsonl"}), RunDirectory(tmp_path), console=QUIET, learn=learner
    )
    assert learner.given[0]["evaluation.reviewed"] == "mine.jsonl"


def test_dr_zero_learns_both_roles(index: Path, tmp_path: Path):
    cold_start(settings(index, "dr-zero"), RunDirectory(tmp_path), console=QUIET, learn=Learner())
    made = load_demonstrations(ColdStart(tmp_path / "cold_start").demonstrations)
    assert sum(isinstance(one, ProposerDemonstration) for one in made) == TIMES * 54 // 2


@pytest.mark.parametrize("given", [{}, {"policy.dtype": "bfloat16"}])
def test_the_run_that_learns_chooses_its_data_type_unless_it_is_given(
    given: dict[str, object], index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A timing that comes out otherwise when a cold start is resumed would else be another config."""
    learnt: list[Run] = []
    monkeypatch.setattr(Run, "train", lambda run: learnt.append(run))
    options = {"search.index": str(index), "cold_start.questions": 60, **given}
    assert Run("search-r1", tmp_path, settings=options, console=QUIET).cold_start()
    assert is_given(learnt[0].settings, "policy.dtype") is bool(given)
    assert lookup(learnt[0].settings, "policy.dtype") == given.get("policy.dtype", "float32")


def test_without_questions_nothing_is_written(index: Path, tmp_path: Path):
    own = settings(index, **{"cold_start.questions": 0})
    assert cold_start(own, RunDirectory(tmp_path / "run"), console=QUIET, learn=Learner()) is own
    assert not (tmp_path / "run").exists()


def test_another_number_of_questions_is_refused_and_nothing_is_lost(index: Path, tmp_path: Path):
    run = RunDirectory(tmp_path)
    cold_start(settings(index), run, console=QUIET, learn=Learner())
    before = ColdStart(tmp_path / "cold_start").questions.read_bytes()
    with pytest.raises(ConfigError, match="another index, system, writer, number of questions"):
        cold_start(settings(index, **{"cold_start.questions": 70}), run, console=QUIET, learn=Learner())
    assert ColdStart(tmp_path / "cold_start").questions.read_bytes() == before


@pytest.mark.parametrize(
    "changed", [{"search.top_k": 4}, {"search.name": "lexical"}, {"run.seed": 1}, {"search.index": ""}]
)
def test_questions_of_other_settings_are_refused(index: Path, tmp_path: Path, changed: dict[str, object]):
    if "search.index" in changed:
        changed = {"search.index": str(tmp_path / "other")}
        LexicalIndex.build(tmp_path / "other", World.generate(1, 200, "train").passages())
    run = RunDirectory(tmp_path / "run")
    cold_start(settings(index), run, console=QUIET, learn=Learner())
    with pytest.raises(ConfigError, match="another index, system, writer, number of questions"):
        cold_start(settings(index, **changed), run, console=QUIET, learn=Learner())


def test_questions_of_a_users_own_are_trained_on(index: Path, tmp_path: Path):
    run, learner = RunDirectory(tmp_path), Learner()
    cold_start(settings(index), run, console=QUIET, learn=learner)
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"question": "Who?", "answer": "Ada"}\n')
    after = cold_start(settings(index, **{"questions.path": str(mine)}), run, console=QUIET, learn=learner)
    assert after is not None
    assert lookup(after, "questions.path") == str(mine)


class FirstLines:
    """A question writer of a user's own: what each document begins with asks for its title."""

    async def write(self, documents: Sequence[Sequence[Passage]], number: int) -> list[Draft]:
        return [
            Draft(hop.question, "title", (hop,))
            for passages in documents[:number]
            for hop in [Hop(f"What does this begin: {passages[0].text[:60]}?", passages[0].title, (passages[0].id,))]
        ]


OWN = f"{__name__}:FirstLines"


def test_a_question_writer_of_a_users_own_writes_the_questions(index: Path, tmp_path: Path):
    own = settings(index, **{"cold_start.writer": OWN})
    cold_start(own, RunDirectory(tmp_path), console=QUIET, learn=Learner())
    files = ColdStart(tmp_path / "cold_start")
    made = [one for path in (files.questions, files.held_out) for one in load_questions(path)]
    assert made
    assert all(one.text.startswith("What does this begin") for one in made)
    assert {one.metadata["kind"] for one in made} == {"title", "unanswerable"}
    with pytest.raises(ConfigError, match="with another index"):
        cold_start(settings(index), RunDirectory(tmp_path), console=QUIET, learn=Learner())


def test_a_writer_without_questions_to_write_has_no_effect(index: Path):
    own = settings(index, **{"cold_start.writer": OWN, "cold_start.questions": 0})
    with pytest.raises(ConfigError, match=r"cold_start.writer.name is set, but it has no effect"):
        check_effect(own, ["cold_start.writer.name"])


@pytest.mark.parametrize("names_system", [True, False])
def test_questions_that_a_release_before_wrote_are_kept(index: Path, tmp_path: Path, names_system: bool):
    """It had no other writer, and named none."""
    run, own = RunDirectory(tmp_path), settings(index)
    cold_start(own, run, console=QUIET, learn=Learner())
    report = ColdStart(tmp_path / "cold_start").report
    search, sha = own.search, inputs_of(own)["search.index"].sha256
    before = [sha, 60, 0, search.name, search.top_k, False] if names_system else [sha, 60, 0, search.top_k]
    report.write_text(json.dumps({**json.loads(report.read_text()), "identity": json_digest(before)}))
    written = report.read_bytes()
    cold_start(own, run, console=QUIET, learn=Learner())
    assert report.read_bytes() == written


def test_two_processes_do_not_write_into_one_directory(index: Path, tmp_path: Path):
    run = RunDirectory(tmp_path)
    with run.locked(), pytest.raises(RunLockedError):
        cold_start(settings(index), run, console=QUIET, learn=Learner())


def test_a_damaged_report_is_named(index: Path, tmp_path: Path):
    cold_start(settings(index), RunDirectory(tmp_path), console=QUIET, learn=Learner())
    ColdStart(tmp_path / "cold_start").report.write_text("{")
    with pytest.raises(RunError, match=r"report.json is damaged"):
        cold_start(settings(index), RunDirectory(tmp_path), console=QUIET, learn=Learner())


def test_a_system_without_an_index_is_refused():
    with pytest.raises(ConfigError, match=r"cold_start.questions is 60"):
        check_settings(load_settings(system="zerosearch", options={"cold_start.questions": 60}))


def test_several_processes_are_refused(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"needs one process, but --processes is 2"):
        cold_start(settings(index), RunDirectory(tmp_path), console=QUIET, learn=Learner())


def test_from_passages_alone_to_a_trained_policy_and_resumed(index: Path, tmp_path: Path):
    options = {
        "search.index": str(index),
        "policy.model": "tiny",
        "cold_start.questions": 120,
        "questions.per_step": 4,
        "rollout.group_size": 4,
        "reward.wrong_penalty": 0.25,
        "run.steps": 1,
        "run.checkpoint_every": 1,
    }
    recipe = "search-r1/documents"  # its stages are of questions that are not written yet
    run = Run(directory=tmp_path / "run", config=recipe, settings=options, console=QUIET)
    assert run.train() == 1
    losses = [json.loads(line) for line in (tmp_path / "run" / "cold_start" / "sft" / "metrics.jsonl").open()]
    assert losses[-1]["eval/loss"] < 0.9 * losses[0]["eval/loss"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["policy"]["model"] == str(tmp_path / "run" / "cold_start" / "sft")
    again = Run(directory=tmp_path / "run", config=recipe, settings={**options, "run.steps": 2}, console=QUIET)
    assert again.train() == 2
    assert Run(directory=tmp_path / "run", console=QUIET).train() == 2
