import csv
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.raising import raises

from evoseek.assembly.inputs import read_questions
from evoseek.errors import DataError
from evoseek.questions.questions import (
    JudgedAnswer,
    cited_share,
    evidence_of,
    load_judged_answers,
    load_questions,
    missing,
    names_of,
    parse_question,
    recall,
    reference_answer,
    save_questions,
    supports,
)
from evoseek.text.language import is_refusal
from evoseek.text.normalization import evaluable_question, usable_question
from evoseek.types import Passage, Question


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def test_a_compressed_file_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "q.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"question": "who?", "answer": "x"}'))
    with pytest.raises(DataError, match="is compressed"):
        load_questions(path)


def test_all_shapes(tmp_path):
    path = write(
        tmp_path / "q.jsonl",
        {"id": "a", "question": " who? ", "golden_answers": ["x", "y"], "metadata": {"source": "nq"}},
        "",
        {"question": "what?", "answer": "z", "hops": 2},
    )
    assert load_questions(path) == [
        Question("a", "who?", ("x", "y"), {"source": "nq"}),
        Question("3", "what?", ("z",), {"hops": 2}),
    ]


def test_what_is_said_about_a_question_may_stand_outside_of_its_metadata(tmp_path):
    row = {"question": "who?", "answer": "x", "metadata": {"source": "nq"}, "kind": "film", "evidence": ["Alien"]}
    (question,) = load_questions(write(tmp_path / "q.jsonl", row))
    assert question.metadata == {"source": "nq", "kind": "film", "evidence": ["Alien"]}


def test_an_unanswerable_question_is_read_and_written_and_trained_on_by_the_rewards_that_can_score_it(tmp_path):
    row = {"id": "a", "question": "who?", "golden_answers": [], "answerable": False}
    path = write(tmp_path / "q.jsonl", row)
    (question,) = load_questions(path, check=evaluable_question)
    assert (question.golden_answers, question.is_answerable) == ((), False)
    assert parse_question({"question": "who?", "answer": "", "answerable": False}, "a").golden_answers == ()
    save_questions(path, [question])
    assert load_questions(path) == read_questions(str(path), setting="evaluation.path") == [question]
    assert read_questions(str(path), setting="questions.path", reward="f1") == [question]
    unscored = (
        r":1: Question 'a' \('who\?'\) is marked as unanswerable, .* rewards exact_match, .* or remove the question"
    )
    for reward in ("judge", ""):
        with pytest.raises(DataError, match=unscored):
            read_questions(str(path), setting="questions.path", reward=reward)


def test_hidden_documents_are_part_of_what_is_said_about_a_question(tmp_path):
    path = write(tmp_path / "q.jsonl", {"question": "who?", "answer": "x", "hidden": ["a.html", "b.html"]})
    (question,) = load_questions(path)
    assert question.hidden == {"a.html", "b.html"}
    save_questions(path, [question])
    assert load_questions(path) == [question]
    assert Question("q", "who?", ("x",)).hidden == frozenset()


def test_an_answer_of_sentences_is_known_by_its_support_or_its_length(tmp_path):
    ten, eleven = (
        "To stop it press the red key for three seconds",
        "To stop it, press the red key for three seconds here",
    )
    rows = [
        {"question": "a?", "answer": "Red.", "support": ["Press the red key."]},
        {"question": "b?", "golden_answers": [eleven, eleven]},
        {"question": "c?", "golden_answers": [eleven, ten]},
        {"question": "d?", "golden_answers": [], "answerable": False},
    ]
    asked = load_questions(write(tmp_path / "q.jsonl", *rows))
    assert [question.is_long for question in asked] == [True, True, False, False]
    assert [question.support for question in asked[:2]] == [("Press the red key.",), ()]
    save_questions(tmp_path / "saved.jsonl", asked)
    assert load_questions(tmp_path / "saved.jsonl") == asked


def test_of_an_unanswerable_question_the_answer_may_be_an_empty_text(tmp_path):
    (question,) = load_questions(write(tmp_path / "q.jsonl", {"question": "who?", "answer": "", "answerable": False}))
    assert (question.golden_answers, question.is_answerable) == ((), False)


def test_a_passage_is_of_a_question_by_a_sentence_or_by_its_file():
    said = Passage("a.md#0", "a.md", "Stopping", "First, press the  RED key. It stops.", file="a.md")
    other = Passage("b.md/2#0", "b.md/2", "Starting", "Press the green key.", file="b.md")
    by_sentence = Question("q", "?", ("x",), {"support": ["Press the red key."]})
    by_file = Question("q", "?", ("x",), {"evidence": ["b.md"]})
    assert [supports(one, by_sentence) for one in (said, other)] == [True, False]
    assert [supports(one, by_file) for one in (said, other)] == [False, True]
    assert cited_share([1], [said, other], by_sentence) == 1.0
    assert cited_share([1, 2, 1, 9], [said, other], by_sentence) == 0.5
    assert cited_share([3], [said, other], by_sentence, uncited=0.25) == 0.25
    assert cited_share([1], [said, other], Question("q", "?", ("x",))) is None


@pytest.mark.parametrize(
    ("row", "phrase"),
    [
        ("{", "Expecting property name"),
        ("3", "Expected a JSON object, got int"),
        ({"question": "who?", "golden_answers": None}, "no golden answer"),
        ({"question": "who?", "golden_answers": []}, 'say `"answerable": false`'),
        ({"question": "who?", "golden_answers": ["x"], "answerable": False}, "['x'], but `answerable` is false"),
        ({"question": "who?", "golden_answers": [], "answerable": "no"}, "must be true or false, got 'no'"),
        ({"question": "who?", "answer": "x", "hidden": "a.html"}, "ids of documents; got 'a.html'"),
        ({"question": "who?", "answer": "x", "metadata": {"hidden": [1]}}, "`hidden` must be a list of texts"),
        ({"question": "who?", "answer": "x", "support": "It is x."}, "sentences of the documents; got 'It is x.'"),
        ({"question": "who?", "golden_answers": ["x", 3]}, "got 3"),
        ({"question": " ", "answer": "x"}, "`question`"),
        ({"question": "who?", "answer": "x", "metadata": 3}, "`metadata`"),
        ({"question": "who?", "answer": "x", "metadata": 0}, "`metadata`"),
        ({"question": "who?", "answer": "x", "metadata": {"hops": "2"}}, "`hops` must be an integer, got '2'"),
        ({"question": "who?", "answer": "x", "hops": True}, "`hops` must be an integer, got True"),
        ({"question": "who?", "answer": "x", "id": 1.5}, "`id` must be a text or an integer, got 1.5"),
        ({"question": "who?", "answer": "x", "id": None}, "`id` must be a text or an integer, got None"),
        ('{"question": ' + "[" * 100_000, "nested too deeply"),
        ('{"question": "who\0", "answer": "x"}', "NUL bytes"),
    ],
)
def test_a_bad_line_is_named(tmp_path, row, phrase):
    path = write(tmp_path / "q.jsonl", {"question": "fine", "answer": "x"}, row)
    with pytest.raises(DataError) as caught:
        load_questions(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert phrase in str(caught.value)


def test_a_byte_order_mark_is_passed_over(tmp_path):
    path = write(tmp_path / "q.jsonl", '\ufeff{"id": 7, "question": "who?", "answer": "x"}')
    assert load_questions(path) == [Question("7", "who?", ("x",))]


def test_ids_are_unique(tmp_path):
    row = {"id": "a", "question": "who?", "answer": "x"}
    with raises("question.id_twice"):
        load_questions(write(tmp_path / "q.jsonl", row, row))


def test_check_may_refuse(tmp_path):
    def check(question):
        raise DataError(f"no {question.text}")

    with pytest.raises(DataError, match=":1: no who"):
        load_questions(write(tmp_path / "q.jsonl", {"question": "who?", "answer": "x"}), check=check)


def test_every_line_that_cannot_be_used_is_told_of_up_to_ten(tmp_path):
    good, bad = {"question": "who?", "answer": "x"}, {"question": "", "answer": "x"}
    with raises("question.no_text") as caught:
        load_questions(write(tmp_path / "q.jsonl", bad, good, "{", good, {"question": "who?"}))
    told = str(caught.value).split("\n")
    assert told[0].startswith("3 lines of")
    assert [line.rpartition("q.jsonl")[2][:3] for line in told[1:]] == [":1:", ":3:", ":5:"]
    with raises("question.no_text") as caught:
        load_questions(write(tmp_path / "q.jsonl", *[bad] * 1234))
    told = str(caught.value).split("\n")
    assert (len(told), told[0][:11], told[-1]) == (12, "1,234 lines", "... and 1,224 more")


def test_an_alias_of_which_nothing_is_left_is_dropped_with_a_notice(tmp_path):
    row = {"question": "who?", "golden_answers": ["The", "Paris", "?!"]}
    path = write(tmp_path / "q.jsonl", row, {"question": "where?", "answer": "x"})
    with pytest.warns(UserWarning, match=r"not used: 'The' \(line 1\), '\?!' \(line 1\)\. The questions keep"):
        questions = load_questions(path, check=usable_question)
    assert [question.golden_answers for question in questions] == [("Paris",), ("x",)]
    path = write(tmp_path / "q.jsonl", row, {"question": "where?", "answer": "the"}, {"question": "", "answer": "x"})
    with pytest.raises(DataError, match=r"(?s)2 lines .*:2: .*empty without.*:3: .*`question`"):
        load_questions(path, check=usable_question)


@pytest.mark.parametrize(
    ("line", "phrase"),
    [
        ('{"id": "\\ud800", "question": "who?", "answer": "x"}', "half a surrogate pair ('\\ud800')"),
        ('{"question": "who?", "answer": "x", "metadata": {"a": ["\\udfff"]}}', "half a surrogate pair"),
        ('{"question": "who?", "answer": "x", "answer": "y"}', "The key 'answer' comes twice"),
        ('{"question": "who?", "answer": "x", "metadata": {"a": 1, "a": 2}}', "The key 'a' comes twice"),
    ],
)
def test_what_would_silently_read_as_something_else_is_refused(tmp_path, line, phrase):
    with pytest.raises(DataError) as caught:
        load_questions(write(tmp_path / "q.jsonl", line))
    assert "q.jsonl:1: The " in str(caught.value)
    assert phrase in str(caught.value)


def test_whole_surrogate_pairs_and_other_keys_are_as_good_as_any(tmp_path):
    path = write(
        tmp_path / "q.jsonl", '{"id": "a", "question": "\\ud83d\\ude00 who?", "answer": "x", "ix": 5, "level": 1}'
    )
    assert load_questions(path) == [Question("a", "😀 who?", ("x",))]


def test_files_without_questions(tmp_path):
    with raises("rows.empty", match="holds no question"):
        load_questions(write(tmp_path / "q.jsonl", ""))
    with raises("rows.missing"):
        load_questions(tmp_path / "missing.jsonl")
    (tmp_path / "latin.jsonl").write_bytes(b"\xff\xfe")
    with raises("rows.not_utf8"):
        load_questions(tmp_path / "latin.jsonl")


texts = st.text(min_size=1).map(str.strip).filter(bool)


@settings(deadline=None)  # a busy machine is slow to write
@given(st.lists(st.tuples(texts, st.lists(st.text(), min_size=1)), min_size=1))
def test_saved_questions_come_back(tmp_path_factory, drawn):
    questions = [Question(f"q{n}", text, tuple(golden), {"hops": n}) for n, (text, golden) in enumerate(drawn)]
    path = tmp_path_factory.mktemp("questions") / "q.jsonl"
    save_questions(path, questions)
    assert load_questions(path) == questions


HOTPOT = {
    "_id": "5a8b",
    "question": "Who is mayor of Kalo?",
    "answer": "Meri",
    "supporting_facts": [["Kalo", 0], ["Meri", 1], ["Kalo", 2]],
    "context": [["Kalo", ["Kalo is a city."]]],
}
OTHER = {"question": "How high is Supa?", "golden_answers": ["7 m", "7 metres"], "metadata": {"hops": 1}}


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_is_read_and_supporting_facts_are_its_evidence(tmp_path, indent):
    (tmp_path / "q.json").write_text(json.dumps([HOTPOT, OTHER], indent=indent))
    first, second = load_questions(tmp_path / "q.json")
    assert (first.id, first.golden_answers, first.metadata) == ("5a8b", ("Meri",), {"evidence": ["Kalo", "Meri"]})
    assert (second.id, second.golden_answers, second.metadata) == ("2", ("7 m", "7 metres"), {"hops": 1})


@pytest.mark.parametrize(
    ("name", "remedy"), [("latin-1", "iconv -f LATIN1"), ("utf-16", "-f UTF-16"), ("utf-16-le", "-f UTF-16")]
)
@pytest.mark.parametrize("row", ['{"question": "Où?", "answer": "Génève"}', "Où?,Génève"])
def test_a_file_that_is_not_utf_8_is_one_error_with_a_remedy(tmp_path, name, remedy, row):
    head = [] if row.startswith("{") else ["question,answer"]
    (tmp_path / "q").write_bytes("\n".join([*head, *[row] * 20]).encode(name))
    with raises("rows.not_utf8") as caught:
        load_questions(tmp_path / "q")
    assert (len(str(caught.value).splitlines()), remedy in str(caught.value)) == (1, True)
    assert "Save the file as UTF-8" in str(caught.value)


def test_supporting_facts_may_be_two_lists(tmp_path):
    facts = {"title": ["Kalo", "Kalo"], "sent_id": [0, 1]}
    (tmp_path / "q.jsonl").write_text(json.dumps({**HOTPOT, "supporting_facts": facts}))
    assert load_questions(tmp_path / "q.jsonl")[0].metadata == {"evidence": ["Kalo"]}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_is_read(tmp_path, separator):
    rows = (
        ("question", "golden_answers", "hops", "answerable"),
        ("When was it built, and where?", "1969", "2", ""),
        ("Who?", '["Meri", "Mayor Meri"]', "", "TRUE"),
    )
    with (tmp_path / "q.csv").open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, delimiter=separator).writerows(rows)
    first, second = load_questions(tmp_path / "q.csv")
    assert (first.text, first.golden_answers, first.metadata) == (rows[1][0], ("1969",), {"hops": 2})
    assert (second.golden_answers, second.metadata) == (("Meri", "Mayor Meri"), {"answerable": True})


@pytest.mark.parametrize(
    ("cell", "answers"),
    [
        ("TRUE", ("TRUE",)),
        ("[12]", ("[12]",)),
        ("12", ("12",)),
        ("null", ("null",)),
        ('"[""Meri"", ""Tor""]"', ("Meri", "Tor")),
    ],
)
def test_an_answer_in_a_table_is_a_text_or_a_list_of_texts_and_headings_may_be_capitalised(tmp_path, cell, answers):
    (tmp_path / "q.csv").write_text(f"Question,Answer,,\nWho?,{cell},,\n")
    (question,) = load_questions(tmp_path / "q.csv")
    assert (question.text, question.golden_answers) == ("Who?", answers)


def test_a_question_without_an_answer_may_stand_in_a_table(tmp_path):
    (tmp_path / "q.csv").write_text("question,golden_answers,answerable\nWho?,[],FALSE\nWhere?,,false\n")
    assert [question.is_answerable for question in load_questions(tmp_path / "q.csv")] == [False, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"question": "a", "answer": "b"},\n{"question": }]', "begins as a JSON array.*line 2.*jq -c"),
        ('[{"question": "a", "answer": "b"}, 3]', "q:2: Expected a JSON object, got int"),
        ("question,answer\nWho, and when?,Meri,x\n", ":2: The row has more cells.*in quotes"),
        ("question,answer\nWho?,\n", ":2: .*no golden answer"),
        ("question,answer,Answer\nWho?,Meri,Tor\n", "q:1: The key 'answer' comes twice"),
        (
            '[{"question": "a", "answer": "b"}, {"question": "a", "answer": "b", "answer": "c"}]',
            "q:2: .*comes twice",
        ),
        ('[{"question": "a", "answer": "b"}, {"question": "a", "answer": "\\ud800"}]', "q:2: .*half a surrogate pair"),
        ('[{"question": "a", "answer": "b"},', "begins as a JSON array.*Expecting ','"),
        (
            '[{"question": "a", "answer": "b"} {"question": "a", "answer": "b"}]',
            "begins as a JSON array.*Expecting ','",
        ),
    ],
)
def test_other_formats_say_what_is_wrong_and_how_to_convert_them(tmp_path, text, said):
    (tmp_path / "q").write_text(text)
    with pytest.raises(DataError, match=said):
        load_questions(tmp_path / "q")


def test_a_table_without_the_headings_is_named_with_what_is_expected(tmp_path):
    (tmp_path / "q.csv").write_text("q,a\nWho?,Ann\n")
    with raises("rows.headings", match=r"first row of .*q\.csv is 'q', 'a'\. Expected .*`question` and `golden_ans"):
        load_questions(tmp_path / "q.csv")


PASSAGES = [Passage("d1#0", "d1", "The  Witch's Curse", ""), Passage("d1#1", "d1", "The Witch's Curse", "")]


@pytest.mark.parametrize(
    ("evidence", "found"),
    [
        (("the witch's curse", "Riccardo Freda"), 0.5),
        (("d1",), 1.0),
        (("d1#1", "d1#2"), 0.5),
        (("d2", "d3"), 0.0),
        ((), None),
    ],
)
def test_recall_by_title_or_id(evidence, found):
    assert recall(evidence, PASSAGES) == found


def test_the_same_document_named_twice_is_needed_once():
    assert recall(("D1", "d1", "d2"), PASSAGES) == 0.5


def test_evidence_is_read_from_the_metadata():
    assert evidence_of(Question("q", "who?", ("x",), {"evidence": ["a", 3, "b"]})) == ("a", "b")
    assert evidence_of(Question("q", "who?", ("x",), {"evidence": "a"})) == ()
    assert evidence_of(Question("q", "who?", ("x",), {"evidence": ["", " ", "b"]})) == ("b",)


def test_what_is_missing():
    assert missing(("d2", "THE WITCH'S CURSE"), names_of(PASSAGES)) == ["d2"]


ROW = {"question": "Who wrote Dune?", "golden_answers": ["Frank Herbert"], "answer": "F. Herbert", "correct": True}


def test_judged_answers_come_with_their_lines(tmp_path):
    """One question may have many answers; its golden answers are never the answer to judge."""
    path = write(tmp_path / "c.jsonl", {**ROW, "id": "a"}, "", {**ROW, "id": "a", "answer": "", "correct": False})
    question = Question("a", "Who wrote Dune?", ("Frank Herbert",))
    assert load_judged_answers(path) == [
        JudgedAnswer(question, "F. Herbert", True, 1),
        JudgedAnswer(question, "", False, 3),
    ]


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        ("{", "Expecting property name"),
        ("[]", "Expected a JSON object, got list"),
        ({**ROW, "answer": None}, "`answer`, the text that is to be judged, is missing"),
        ({**ROW, "correct": "yes"}, "`correct`, true or false, says whether the answer is; got 'yes'"),
        ({**ROW, "correct": 1}, "got 1"),
        ({"question": "who?", "golden_answers": ["x"], "answer": "x"}, "got None"),
        ({"question": "who?", "answer": "x", "correct": True}, "`golden_answers`, a list of the right answers"),
        ({**ROW, "golden_answers": []}, "no golden answer"),
        ({**ROW, "question": " "}, "`question`"),
    ],
)
def test_a_bad_judged_answer_is_named(tmp_path, bad, phrase):
    path = write(tmp_path / "cases.jsonl", ROW, bad)
    with pytest.raises(DataError) as caught:
        load_judged_answers(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert phrase in str(caught.value)


def test_files_without_judged_answers(tmp_path):
    with pytest.raises(DataError, match="holds no judged answer"):
        load_judged_answers(write(tmp_path / "cases.jsonl", ""))
    with pytest.raises(DataError, match=r"cannot be read.*`correct`"):
        load_judged_answers(tmp_path / "missing.jsonl")


def test_the_reference_is_what_the_passages_hold_and_a_refusal_where_they_do_not():
    said, other = (
        Passage("b#0", "b", "Kalo", "Its mayor is Meri Vesu. She is 40."),
        Passage("a#0", "a", "Nida", "A city."),
    )
    short = Question("q", "Who is mayor?", ("Meri Vesu",))
    support = {"support": ["Its mayor is Meri Vesu."]}
    long = Question("q", "What is said?", ("Its mayor is Meri Vesu.",), metadata=support)
    elsewhere = Question("q", "Who is mayor?", ("Meri Vesu",), metadata={"evidence": ["Nida"]})
    none = Question("q", "Who is mayor?", (), metadata={"answerable": False})
    assert reference_answer(short, [other, said]) == "Meri Vesu"
    assert reference_answer(long, [other, said]) == "Its mayor is Meri Vesu. [2]"
    for question, passages in (
        (short, [other]),
        (long, [other]),
        (elsewhere, [said, other]),
        (none, [said]),
        (short, []),
    ):
        assert is_refusal(reference_answer(question, passages))
