"""Questions sorted by a judge, by what a model knows and by overlap: the files that come of it."""

import re
from contextlib import contextmanager
from io import StringIO

import pytest
from rich.console import Console
from tests.doubles.scripted import ScriptedChat

from evoseek.assembly.context import Context
from evoseek.assembly.sources import load_settings
from evoseek.curation import filtering
from evoseek.curation.filtering import Filter
from evoseek.errors import ConfigError, DataError, EvoseekError
from evoseek.questions.questions import load_questions, save_questions
from evoseek.rollout.prompts import load_prompts
from evoseek.types import Question

QUESTIONS = [Question(name, f"who is {name} of the long lake near Kalo ?", ("Meri",)) for name in "abcdef"]


@pytest.fixture
def source(tmp_path):
    save_questions(tmp_path / "questions.jsonl", QUESTIONS)
    return tmp_path / "questions.jsonl"


def said(command, *arguments, **options):
    """What a command returns and prints."""
    out = StringIO()
    result = command(*arguments, **options, console=Console(file=out, width=200))
    return result, " ".join(out.getvalue().split())


def about(*sets, judge=None):
    """The context of these settings, with a chat in the judge's place."""
    if judge is not None:
        sets = ("judge.model=scripted", *sets)
    with Context(load_settings(sets=sets)) as context:
        if judge is not None:
            context.shared("chat judge", lambda: (judge, load_prompts("default")))
        return context


def judged_by(replies):
    return ScriptedChat({f"filter/{name}": reply for name, reply in replies.items()})


def ids(path):
    return [question.id for question in load_questions(path)]


REPLIES = {"a": "good", "b": "harmful", "c": "subjective", "d": "harmful", "e": "hm", "f": "good"}


def test_each_question_goes_into_one_of_three_files(source, tmp_path):
    done, text = said(Filter().run, about(judge=judged_by(REPLIES)), source, tmp_path / "clean.jsonl")
    assert done
    assert ids(tmp_path / "clean.jsonl") == ["a", "f"]
    assert ids(tmp_path / "clean.dropped.jsonl") == ["b", "c", "d"]
    assert ids(tmp_path / "clean.undecided.jsonl") == ["e"]
    assert load_questions(tmp_path / "clean.jsonl")[0] == QUESTIONS[0]
    assert re.search(r"3 of 6 questions are in \S+clean.dropped.jsonl: 2 harmful, 1 subjective\.", text)
    assert re.search(r"1 of 6 questions are not decided, and in \S+undecided.jsonl. For example: The reply 'hm'", text)
    assert "2 of 6 questions are kept" in text


def test_stopped_and_gone_on_with(source, tmp_path, monkeypatch):
    monkeypatch.setattr(filtering, "BATCH", 2)
    chat, out = judged_by(REPLIES), tmp_path / "clean.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr("evoseek.curation.batches.stop_on_interrupt", lambda say: stop_after(1))
        done, text = said(Filter().run, about(judge=chat), source, out)
    assert (done, "Stopped after 2 of 6" in text, out.exists()) == (False, True, False)
    assert said(Filter().run, about(judge=chat), source, out)[0]
    whole = out.read_bytes()
    assert said(Filter().run, about(judge=chat), source, out)[0]  # nothing is left to do: the same files
    assert (len(chat.asked), out.read_bytes()) == (6, whole)
    with pytest.raises(ConfigError, match="begun with other settings"):
        said(Filter().run, about("judge.model=another", judge=chat), source, out)


@contextmanager
def stop_after(batches):
    left = iter(range(batches))
    yield lambda: next(left, None) is None


def test_all_checks_in_one_pass(source, tmp_path):
    """b overlaps, c and d are no good by the judge, who is not asked about b; a and f go on to the tiny policy."""
    save_questions(tmp_path / "dev.jsonl", [QUESTIONS[1]])
    judge = judged_by(REPLIES)
    context = about("rollout.max_tokens_per_turn=8", "policy.model=tiny", judge=judge)
    wanted = Filter([tmp_path / "dev.jsonl"], samples=1, likeness=1.0)
    _, text = said(wanted.run, context, source, tmp_path / "clean.jsonl")
    assert ids(tmp_path / "clean.jsonl") == ["a", "f"]
    assert sorted(asked.key for asked in judge.asked) == [f"filter/{name}" for name in "acdef"]
    assert "closed-book answers that are right: 0: 2." in text


def test_nothing_is_overwritten_and_nothing_kept_is_an_error(source, tmp_path):
    context = about(judge=judged_by(dict.fromkeys("abcdef", "harmful")))
    (tmp_path / "mine.dropped.jsonl").write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        said(Filter().run, context, source, tmp_path / "mine.jsonl")
    assert (tmp_path / "mine.dropped.jsonl").read_text() == "mine"
    with pytest.raises(EvoseekError, match="All 6 questions were filtered out"):
        said(Filter().run, context, source, tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_nothing_is_overwritten_after_an_early_error_either(source, tmp_path):
    out, chat = tmp_path / "mine.jsonl", judged_by(REPLIES)
    with pytest.raises(ConfigError, match=r"judge\.model is empty\. Set judge"):
        said(Filter().run, about("judge.base_url=http://localhost:1"), source, out)
    out.write_text("mine")
    with pytest.raises(ConfigError, match="is there already"):
        said(Filter().run, about(judge=chat), source, out)
    assert out.read_text() == "mine"
    out.unlink()
    assert said(Filter().run, about(judge=chat), source, out)[0]


def test_contamination_by_overlap_and_by_what_the_tiny_policy_knows(source, tmp_path):
    save_questions(tmp_path / "dev.jsonl", [QUESTIONS[1]])
    with pytest.raises(ConfigError, match="nothing to check"):
        said(Filter().run, about(), source, tmp_path / "x.jsonl")
    context = about("rollout.max_tokens_per_turn=8", "policy.model=tiny")
    wanted = Filter([tmp_path / "dev.jsonl"], samples=2, likeness=1.0)
    done, text = said(wanted.run, context, source, tmp_path / "clean.jsonl")
    assert done
    assert ids(tmp_path / "clean.dropped.jsonl") == ["b"]
    assert "1 shared words" in text
    assert "closed-book answers that are right: 0: 5." in text
    assert re.search(r"\d of 10 samples held an answer", text)


def test_it_is_resumed_with_the_same_evaluation_files_numbers_and_seed_alone(source, tmp_path):
    for name, question in (("dev", QUESTIONS[1]), ("test", QUESTIONS[2])):
        save_questions(tmp_path / f"{name}.jsonl", [question])
    context, out, dev = about("policy.model=tiny"), tmp_path / "clean.jsonl", [tmp_path / "dev.jsonl"]
    with pytest.raises(EvoseekError, match="All 6 questions"):  # all of them share "who is"
        said(Filter(dev, words=1, samples=1).run, context, source, out)
    for other in (
        Filter([tmp_path / "test.jsonl"], words=1, samples=1),
        Filter(dev, words=2, samples=1),
        Filter(dev, words=1, samples=2),
        Filter(dev, words=1, samples=1, likeness=0.5),
    ):
        with pytest.raises(ConfigError, match="begun with other settings"):
            said(other.run, context, source, out)
    with pytest.raises(ConfigError, match="begun with other settings"):
        said(Filter(dev, words=1, samples=1).run, about("policy.model=tiny", "run.seed=3"), source, out)


def test_a_judge_that_mostly_fails_ends_it(source, tmp_path):
    save_questions(source, [Question(f"q{number}", f"who is {number} ?", ("Meri",)) for number in range(60)])
    context = about(judge=judged_by({"q0": "good"}))
    with pytest.raises(EvoseekError, match="no reply"):
        said(Filter().run, context, source, tmp_path / "clean.jsonl")
    assert not (tmp_path / "clean.jsonl").exists()
    lenient = about("run.max_invalid=1.0", judge=judged_by({"q0": "good"}))
    assert said(Filter().run, lenient, source, tmp_path / "clean.jsonl")[0]


def test_golden_answers_that_nothing_could_match_are_refused(source, tmp_path):
    save_questions(source, [*QUESTIONS, Question("bad", "who ?", ("The !?",))])
    with pytest.raises(DataError, match=r"questions\.jsonl:7"):
        said(Filter().run, about(judge=judged_by(REPLIES)), source, tmp_path / "clean.jsonl")


def test_questions_without_an_answer_are_examined_too(source, tmp_path):
    save_questions(source, [*QUESTIONS, Question("none", "Who rules Tolu ?", (), {"answerable": False})])
    save_questions(tmp_path / "dev.jsonl", [QUESTIONS[1]])
    wanted = Filter([tmp_path / "dev.jsonl"], likeness=1.0)
    assert said(wanted.run, about(), source, tmp_path / "clean.jsonl")[0]
    assert "none" in ids(tmp_path / "clean.jsonl")
