"""What a small corpus can answer, worked out by hand."""

import json

import pytest

from evoseek.cli.main import main
from evoseek.curation.audit import CorpusAnswers, audit, shares
from evoseek.questions.questions import load_questions
from evoseek.search.lexical import LexicalIndex
from evoseek.types import Passage, Question

PASSAGES = [
    Passage("d1#0", "d1", "Kalo", "The mayor of Kalo is Meri Tolu, born on 3 May 1950."),
    Passage("d2#0", "d2", "Vesu", "A film by Lina Oro."),
]


def question(text, *golden, **metadata):
    return Question(text, text, golden, metadata)


def audited(one, first=PASSAGES):
    return audit(one, CorpusAnswers([one], PASSAGES), first)


@pytest.mark.parametrize(
    ("golden", "held"),
    [
        (("Meri Tolu",), True),
        (("meri tolu",), True),
        (("3 May 1950", "May 3, 1950"), True),
        (("Meri",), True),
        (("Mer",), False),
        (("Tolu born",), True),
        (("Lina Tolu",), False),
        (("Kalo",), True),
    ],
)
def test_a_golden_answer_in_some_passage_as_whole_words(golden, held):
    found = audited(question("who?", *golden))
    assert (found.gold, found.is_answerable) == (held, held)


def test_a_golden_answer_of_a_script_without_spaces_in_some_passage():
    passage = Passage("p", "p", "", "中国的首都是北京，也是最大的城市之一。")
    for answer, held in (("北京", True), ("上海", False)):
        one = question("中国的首都是哪里？", answer)
        found = audit(one, CorpusAnswers([one], [passage]), [passage])
        assert (found.gold, found.found, found.is_answerable) == (held, held, held)


def test_found_is_about_the_engines_passages_and_gold_about_the_corpus():
    found = audited(question("who made Vesu?", "Lina Oro"), PASSAGES[:1])
    assert (found.gold, found.found, found.is_answerable) == (True, False, True)


def test_evidence_that_is_missing_is_named():
    found = audited(question("who?", "Meri Tolu", evidence=["kalo", "Tora"]))
    assert (found.evidence, found.lacks, found.is_answerable) == (False, ("Tora",), False)
    assert audited(question("who?", "Meri Tolu", evidence=["Kalo", "d2"])).evidence is True
    assert audited(question("who?", "Meri Tolu")).evidence is None


@pytest.mark.parametrize(
    ("text", "golden", "vague", "in_question"),
    [
        ("who?", ("The", "?!"), True, False),
        ("who?", ("of the",), True, False),
        ("is Kalo or Vesu larger?", ("Kalo",), False, True),
        ("is Kalo or Vesu larger?", ("Kalo", "Meri"), False, False),
        ("who is from Kalos?", ("Kalo",), False, False),
        ("is Kalo large?", ("no",), False, False),
    ],
)
def test_golden_answers_that_say_nothing_or_stand_in_the_question(text, golden, vague, in_question):
    found = audited(question(text, *golden))
    assert (found.vague, found.in_question) == (vague, in_question)
    assert not (found.vague and found.is_answerable)


def test_a_yes_or_no_question_needs_no_passage_with_its_answer():
    found = audited(question("is Kalo large?", "Yes", evidence=["Kalo"]))
    assert (found.gold, found.yes_or_no, found.is_answerable) == (False, True, True)


def test_shares_count_what_is_known():
    ones = [question("who?", "Meri", evidence=["Kalo"]), question("what?", "gold"), question("where?", "Oro")]
    corpus = CorpusAnswers(ones, PASSAGES)
    found = shares([audit(one, corpus, []) for one in ones])
    assert found["golden answer in some passage"] == (2, 3)
    assert found["golden answer in the first 100 passages"] == (0, 3)
    assert found["all evidence in the corpus"] == (1, 1)
    assert found["answerable"] == (2, 3)


@pytest.fixture
def audit_command(tmp_path, capsys, monkeypatch):
    LexicalIndex.build(
        tmp_path / "index",
        [Passage("a#0", "a", "Kalo", "The mayor of Kalo is Meri."), Passage("b#0", "b", "Vesu", "A film by Lina Oro.")],
    )
    rows = [
        {"id": "q1", "question": "who is the mayor of Kalo?", "answer": "Meri", "evidence": ["Kalo"]},
        {"id": "q2", "question": "who made Vesu?", "answer": "Lina Oro", "evidence": ["Vesu", "Tora"]},
        {"id": "q3", "question": "who made Tora?", "answer": "Nobody Known"},
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(*words):
        given = ("data", "audit", tmp_path / "q.jsonl", tmp_path / "out.jsonl", "--index", tmp_path / "index", *words)
        monkeypatch.setattr("sys.argv", ["evoseek", *map(str, given)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), " ".join((said.out + said.err).split())

    return run


def test_a_table_the_answerable_questions_and_what_was_found_about_each(audit_command, tmp_path):
    status, said = audit_command()
    assert status == 0, said
    assert "1 answerable questions are in" in said
    assert [question.id for question in load_questions(tmp_path / "out.jsonl")] == ["q1"]
    found = [json.loads(line) for line in (tmp_path / "out.audit.jsonl").read_text().splitlines()]
    assert [(one["gold"], one["found"], one["evidence"], one["lacks"]) for one in found] == [
        (True, True, True, []),
        (True, True, False, ["Tora"]),
        (False, False, None, []),
    ]
    status, said = audit_command()
    assert (status, "out.jsonl is there already" in said) == (2, True)


@pytest.mark.parametrize("lost", [0, 30])
def test_an_audit_that_ended_between_its_files_is_done_again_by_the_same_command(audit_command, tmp_path, lost):
    assert audit_command()[0] == 0
    whole = {name: (tmp_path / name).read_bytes() for name in ("out.jsonl", "out.audit.jsonl")}
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "out.audit.jsonl").write_bytes(whole["out.audit.jsonl"][: -lost or None])
    assert audit_command()[0] == 0
    assert {name: (tmp_path / name).read_bytes() for name in whole} == whole


def test_an_audit_of_what_is_not_answered_may_be_given_again_and_another_file_stays(audit_command, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"id": "q3", "question": "who made Tora?", "answer": "Nobody Known"}\n')
    for _ in range(2):
        status, said = audit_command()
        assert (status, "The corpus answers not one of 1 questions" in said) == (2, True)
    (tmp_path / "out.audit.jsonl").write_text('{"mine": 1}\n')
    status, said = audit_command()
    assert (status, "out.audit.jsonl is there already" in said) == (2, True)
    assert (tmp_path / "out.audit.jsonl").read_text() == '{"mine": 1}\n'
