"""Which passages support an answer, worked out by hand."""

import asyncio
import time
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.scripted import ScriptedChat

from evoseek.agent.support import SupportJudge, spans, support_of
from evoseek.errors import ToolError
from evoseek.renderers.encoding import plain
from evoseek.rollout.prompts import load_prompts
from evoseek.text.scripts import without_citations
from evoseek.types import Passage, Question, StopReason, ToolCall, ToolResult, Trajectory

KALO = Passage("kalo#0", "kalo", "Kalo", "Kalo is a town by the sea. Its mayor is Meri Tolu, who was born in Vesu.")
VESU = Passage("vesu#0", "vesu", "Vesu", "Vesu has 2,400 people. It was founded in 1702 by Tor Ane.")
OTHER = Passage("misc#0", "misc", "Weather", "It rains often. The treaty was signed in Paris.")
MAY = Passage("may#0", "may", "A", "On 3 May, that is 03.05.1999, the two had it. None of it was not long: 2.5 hours.")
PUMP = Passage(
    "pump#0", "pump", "Pumps of series B", "A pump of series B may run dry for 40 minutes. The B series is new."
)
PUMP_C = Passage("pump-c#0", "pump-c", "Series C", "It must never run dry.")
JAPAN = Passage("jp#0", "jp", "東京", "東京は日本の首都です。")


def answered(question, answer, *passages):
    """Two searches that both find the first passage."""
    results = tuple(ToolResult(ToolCall("search", {}), "", found) for found in (passages, passages[:1]))
    return Trajectory("t", Question("t", question, ()), "solver", (), (), results, StopReason.ANSWERED, answer)


WHO = "Who is the mayor of Kalo?"


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        # The whole answer, in a row
        (WHO, "meri  TOLU.", (["kalo"], True, "words")),
        ("How many people has Vesu?", "2400", (["vesu"], True, "words")),
        ("Where was she born?", "Vesu", (["kalo", "vesu"], True, "words")),
        (WHO, "Tolu Meri", ([], False, "words")),
        (WHO, "Meri Tol", ([], False, "words")),
        ("What was signed?", "Treaty of Paris", ([], False, "words")),
        # Sentences and several parts: what they say beyond the question
        (WHO, "The mayor of Kalo is Meri Tolu.", (["kalo"], True, "words")),
        (WHO, "The mayor of Kalo is Tor Meri.", ([], False, "words")),
        ("Who are mayor and founder?", "Meri Tolu and Tor Ane", (["kalo", "vesu"], True, "words")),
        ("Who are mayor and founder?", "Meri Tolu and Lina", ([], False, "words")),
        (WHO, "not Meri Tolu", ([], False, "words")),
        (WHO, "the mayor of Kalo", ([], False, "words")),
        ("Which month?", "May", (["may"], True, "words")),
        ("How many had it?", "two", (["may"], True, "words")),
        (WHO, "the", ([], False, "words")),
        (WHO, "by the", ([], False, "words")),
        (WHO, "not", ([], False, "words")),
        # What the question says already, in a passage that says it too
        ("Was ist Treaty?", "Treaty", ([], False, "words")),
        ("Who saw that the treaty was signed?", "the treaty was signed", ([], False, "words")),
        # Words of the question, in any order and with empty words, unless it offers them to choose from
        ("How long may the pump series B run dry?", "B", ([], False, "words")),
        ("How long may the pump series B run dry?", "the B series", ([], False, "words")),
        ("How long may the pump series B run dry?", "dry", ([], False, "words")),
        ("How long may the pump series B run dry?", "40 minutes", (["pump"], True, "words")),
        ("Which pump may run dry: series B or series C?", "series B", (["pump", "pump-c"], True, "topic")),
        ("Which of series B and series C may run dry?", "series B", (["pump", "pump-c"], True, "topic")),
        # Numbers within numbers
        ("How long did it last?", "5", ([], False, "words")),
        ("How long did it last?", "2.5 hours", (["may"], True, "words")),
        ("In which year?", "1999", (["may"], True, "words")),
        # A denial that stands in some passage
        (WHO, "Meri Tolu is not the mayor of Kalo", ([], False, "words")),
        (WHO, "It cannot be Meri Tolu", ([], False, "words")),
        # No answer
        (WHO, "none", ([], False, "none")),
        (WHO, "Unknown", ([], False, "none")),
        (WHO, "I don't know.", ([], False, "none")),
        (WHO, "  ", ([], False, "none")),
        # Yes and no: what was found is about the question
        ("Is Kalo a town by the sea?", "yes", (["kalo"], True, "topic")),
        ("Was the treaty signed in Rome?", "No", (["misc"], True, "topic")),
        ("Is Lina a river?", "yes", ([], False, "topic")),
        ("Did Lina have a May?", "yes", ([], False, "topic")),
        # and says two thirds of its words: kalo and not ski, resort; kalo and vesu of three; kalo and not harbour
        ("Is Kalo a ski resort?", "yes", ([], False, "topic")),
        ("Is Kalo larger than Vesu?", "yes", (["kalo", "vesu"], True, "topic")),
        ("Has Kalo a harbour?", "no", ([], False, "topic")),
        # A choice between named things: one is said, and two documents are about them
        ("Which is larger, Kalo or Vesu?", "Vesu", (["kalo", "vesu"], True, "topic")),
        ("Which is larger, Vesu or Lina?", "Lina", (["vesu"], False, "topic")),
    ],
)
def test_by_words(question, answer, expected):
    support = support_of(answered(question, answer, KALO, VESU, OTHER, MAY, PUMP, PUMP_C))
    assert ([passage.document_id for passage in support.passages], support.is_given, support.rule) == expected


RACE = Passage("race#0", "race", "staggered_race", "staggered_race(coros, delay): runs the coros in a group.")
FILM = Passage("f#0", "f", "Iron Kiwi (film)", "Iron Kiwi is a 1974 drama directed by Ana Tolu.")
ANA = Passage("a#0", "a", "Ana Tolu", "Ana Tolu, born in 1931, is a director.")
LINA = Passage("l#0", "l", "Lina Oru", "Lina Oru was born in 1950. Her father was a baker.")
STADT = Passage("s#0", "s", "Vesu", "Vesu ist eine Stadt. Ihre Leiterin ist Ida Oro.")
LATER = Passage("f#7", "f", "Iron Kiwi (film)", "It was shot in Vesu.")


@pytest.mark.parametrize(
    ("question", "answer", "passages", "expected"),
    [
        # Four significant words, of which 1974 counts twice: none of 5
        ("Who won the football world cup of 1974?", "staggered_race", (RACE,), []),
        ("Who won the football world cup of 1974?", "The world cup of 1974 was won by staggered_race", (RACE,), []),
        # iron and kiwi count twice, directed once, film stands in the title: 6 of 6
        ("Who directed the film Iron Kiwi?", "Ana Tolu", (FILM, LINA), ["f#0"]),
        # The stems of words count: direct, produce of iron, kiwi (twice each), directing, producing: 5 of 6
        ("Who was directing or producing Iron Kiwi?", "Ana Tolu", (FILM,), ["f#0"]),
        # iron and kiwi, but not big, noisy, silent, tragedy: 4 of 8, which is half; with loud 4 of 9
        ("Who made the big noisy silent tragedy Iron Kiwi?", "Ana Tolu", (FILM,), ["f#0"]),
        ("Who made the big noisy loud silent tragedy Iron Kiwi?", "Ana Tolu", (FILM,), []),
        # directed, drama, kiwi: 4 of 6, but the name is another; and longer is another, too
        ("Who directed the drama Stone Kiwi?", "Ana Tolu", (FILM,), []),
        ("Who directed the drama Iron Kiwi Hills?", "Ana Tolu", (FILM,), []),
        # Two of three names; two of four; a genitive ends a name
        ("Who directed the drama Iron Kiwi of 1974 shot in Kalo?", "Ana Tolu", (FILM,), ["f#0"]),
        ("Who directed the drama Iron Kiwi of 1974 in Kalo or in the Vesu Hills?", "Ana Tolu", (FILM,), []),
        ("Who directed the drama Kiwi, the Iron Kiwi?", "Ana Tolu", (FILM,), ["f#0"]),
        ("Who directed 1974's Iron Kiwi?", "Ana Tolu", (FILM,), ["f#0"]),
        # A year and a punctuation mark end one, and a role before it need not stand there
        ("Who directed the 1974 Iron Kiwi?", "Ana Tolu", (FILM,), ["f#0"]),
        ("In Vesu, Iron Kiwi was directed by whom?", "Ana Tolu", (FILM,), []),
        ("When was Director Ana Tolu born?", "1931", (ANA,), ["a#0"]),
        ("When was Ana Maria Tolu, the director, born?", "1931", (ANA,), []),
        # Where every word has a capital letter, none says what is a name
        ("Who Was Directing Or Producing The Drama Kiwi Iron?", "Ana Tolu", (FILM,), ["f#0"]),
        ("WHO DIRECTED THE DRAMA KIWI IRON?", "Ana Tolu", (FILM,), ["f#0"]),
        # In German every noun has one
        ("Wer ist die Leiterin der Stadt Vesu?", "Ida Oro", (STADT,), ["s#0"]),
        # Two hops: that of the director does not name the film, which names her
        ("When was the director of the film Iron Kiwi born?", "1931", (FILM, ANA), ["a#0"]),
        ("When was the director of the film Iron Kiwi born?", "1931", (ANA, FILM), ["a#0"]),
        ("When was the director of the film Iron Kiwi born?", "1931", (ANA, LINA), []),
        ("When was the director of the film Iron Kiwi born?", "1950", (FILM, LINA), []),
        # A passage of the same document says what the other is about
        ("Where was the drama Iron Kiwi shot?", "Vesu", (LATER,), ["f#7"]),
        ("Where did Ana Tolu shoot her drama of 1974?", "Vesu", (LATER, RACE), []),
        ("Where did Ana Tolu shoot her drama of 1974?", "Vesu", (LATER, RACE, FILM), ["f#7"]),
        # One significant word, or none: the question is a part of a conversation
        ("And when was she born?", "1950", (LINA,), ["l#0"]),
    ],
)
def test_what_holds_the_answer_has_to_be_about_the_question(question, answer, passages, expected):
    support = support_of(answered(question, answer, *passages))
    assert ([passage.id for passage in support.passages], support.is_given) == (expected, bool(expected))


def test_a_heading_says_what_a_passage_is_about():
    text = "Such a model returns as many bytes as it has: 64."
    question = "How many bytes has the model Vesu II?"
    bare = Passage("m#0", "m", "Manual", text)
    assert not support_of(answered(question.replace("bytes has", "litres holds"), "64", bare)).is_given
    assert support_of(
        answered(question.replace("bytes has", "litres holds"), "64", replace(bare, heading="Vesu II"))
    ).is_given


def test_scripts_without_spaces():
    assert support_of(answered("日本の首都はどこですか", "東京", JAPAN)).is_given
    assert not support_of(answered("日本の首都はどこですか", "京都", JAPAN)).is_given
    assert support_of(answered("東京は日本の首都ですか", "はい", JAPAN)).is_given
    born = Passage("jp#1", "jp", "人", "1995年、関東。京都に2,400人、NASA社。")
    said = {answer: support_of(answered("何", answer, born)).is_given for answer in ("5年", "東京", "400人", "A社")}
    assert said == {"5年": False, "東京": False, "400人": False, "A社": False}
    assert all(support_of(answered("何", answer, born)).is_given for answer in ("1995年", "関東", "2400人", "NASA社"))


@pytest.mark.parametrize(
    ("words", "text", "expected"),
    [
        (["2400"], "Vesu has 2,400 people.", ["2,400"]),
        (["meri tolu"], "MÉRI\n Tolu, merit olu, Meri-Tolu", ["MÉRI\n Tolu", "Meri-Tolu"]),
        (["5"], "2.5 hours, 5 days", ["5"]),
        (["run dry", "dry for"], "It may run dry for days.", ["run dry for"]),
        (["strasse", "½"], "Straße 1½", ["Straße"]),
        (["東京"], "首都は東 京です。", ["東 京"]),
        (["5年"], "1995年、5年", ["5年"]),
        (["", "?"], "What?", []),
    ],
)
def test_words_are_found_again_in_the_text(words, text, expected):
    assert [text[start:end] for start, end in spans(words, text)] == expected


@given(st.text(), st.lists(st.text(), max_size=3))
def test_spans_lie_in_the_text_in_order_and_apart(text, words):
    found = [0, *(place for span in spans(words, text) for place in span), len(text)]
    assert found == sorted(found)
    assert all(start < end for start, end in spans(words, text))


@pytest.mark.parametrize(
    ("answer", "text", "expected"),
    [
        ("40 °C", "The pump stops at -40 °C.", False),
        ("-40 °C", "The pump stops at \u221240 °C.", True),
        ("-40 °C", "The pump stops at minus 40 °C.", True),
        ("40 °C", "It runs from \u221240 °C to 40 °C.", True),
        ("35", "It takes 3.5 bar.", False),
        ("2", "It takes 1/2 bar.", False),
        ("½", "It takes 2½ bar.", False),
        ("106 litres", "It holds 10⁶ litres.", False),
        ("10^6 litres", "It holds 10⁶ litres.", True),
        ("1000", "It holds 1 000 litres.", True),
        ("12345", "It holds 12 345 litres.", True),
        ("345", "Rooms 12 345 and 400.", True),  # which may be two numbers
        ("1250", "It holds 1.250 litres.", False),
        ("1250", "Der Tank der Pumpe fasst 1.250 Liter und ist neu.", True),
        ("1.250", "Der Tank der Pumpe fasst 1.250 Liter und ist neu.", True),
        ("1958", "سنة ١٩٥٨", True),
        ("كتاب", "هذا كِتَابٌ", True),
        ("1945", "The war of 1939\u20131945.", True),
        ("O'Brien", "It was O\u2019Brien.", True),
        ("Cafe\u0301 Tolu", "The Café Tolu.", True),
        ("C", "It is written in C++ and C#.", False),
        ("C++", "It is written in C++.", True),
        ("北京", "首都是北京。", True),
        ("40度", "首都是\uff0d40度。", False),
        ("5度", "気温は２．５度。", False),
    ],
)
def test_an_answer_stands_in_a_text_by_its_numbers_and_names(answer, text, expected):
    passage = Passage("p#0", "p", "", text)
    assert support_of(answered("What?", answer, passage)).is_given == expected
    assert bool(spans([answer], text)) == expected


class Manual:
    """An index of 10,000 passages, half of which name the product, of which so many hold a word."""

    counts: ClassVar = {
        "ostrea": 5_000,
        "who": 900,
        "wrote": 400,
        "next": 300,
        "fire": 40,
        "drill": 9,
        "default": 2_000,
        "modiola": 1_200,
    }

    def __len__(self):
        return 10_000

    def passages_with(self, word):
        return self.counts.get(word, 0 if word in ("rsyslog", "kubectl", "nginx") else 100)


SETTING = Passage("s#0", "s", "Resources", "It is hash_mem times the base. The default value of hash_mem is 2.0.")
PATCH = Passage("g#0", "g", "Manual", "It was someone who wrote a patch and configured errors to log to a file.")
PROBES = Passage("p#0", "p", "Probes", "The probes fire when the next query is begun, on 2 June.")


@pytest.mark.parametrize(
    ("question", "answer", "passage", "shown"),
    [
        # A name that most of the index is about need not stand in a passage
        ("What is the default value of hash_mem in Ostrea?", "2.0", SETTING, (False, True)),
        ("In Ostrea, what is the default value of hash_mem?", "2.0", SETTING, (False, True)),
        ("Is 2.0 the default value of hash_mem in Ostrea?", "yes", SETTING, (True, True)),
        # nor one that its folder has
        ("What is the default value of hash_mem in Limaria?", "2.0", SETTING, (False, False)),
        *(
            ("What is the default value of hash_mem in Limaria?", "2.0", replace(SETTING, file=file), (True, True))
            for file in ("limaria/resources.html", "manuals/Limaria 15/a.pdf")
        ),
        # A rare word weighs as a name does, whatever its case
        ("Who wrote rsyslog?", "someone", PATCH, (True, False)),
        ("Who wrote Rsyslog?", "someone", PATCH, (False, False)),
        ("who wrote kubectl", "someone", PATCH, (True, False)),
        ("how do i configure nginx to log errors to a file", "patch", PATCH, (True, False)),
        # Nor is a product of other documents one that the index is about; and the answer may say the question's verb
        *(
            (f"Who wrote {name}?", "someone who wrote a patch", PATCH, (False, False))
            for name in ("Modiola", "modiola", "nginx", "Rsyslog")
        ),
        ("When is the next fire drill?", "2 June", PROBES, (True, False)),
        ("When do the probes fire?", "2 June", PROBES, (True, True)),
        ("Who wrote a patch?", "someone", PATCH, (True, True)),
    ],
)
def test_words_weigh_as_they_are_rare_in_the_index(question, answer, passage, shown):
    trajectory = answered(question, answer, passage)
    assert (support_of(trajectory).is_given, support_of(trajectory, Manual()).is_given) == shown


def test_a_long_run_of_spaces_in_a_title_takes_no_time():
    spaced = replace(KALO, title=f"Kalo{' ' * 100_000}town")  # as a server of another program may send it
    begin = time.process_time()
    assert support_of(answered(WHO, "Meri Tolu", spaced)).is_given
    assert time.process_time() - begin < 5


def test_without_a_search_nothing_is_supported():
    trajectory = answered(WHO, "Meri", KALO)
    assert not support_of(
        Trajectory("t", trajectory.question, "solver", (), (), (), StopReason.ANSWERED, "Meri")
    ).is_given
    assert not support_of(Trajectory("t", trajectory.question, "solver", (), (), (), StopReason.MAX_TURNS)).is_given


def judged(reply, *given):
    chat = ScriptedChat({"t/support": reply})
    return asyncio.run(SupportJudge(chat, load_prompts("default")["support"])(answered(*given))), chat


def test_a_judge_sees_question_answer_and_passages():
    support, chat = judged('{"supported": false}', WHO, "Meri Tolu", KALO, VESU)
    assert ([*support.passages], support.is_given, support.rule) == ([], False, "judge")
    prompt = plain(chat.asked[0].messages[0].content)
    assert "The question: Who is the mayor of Kalo?" in prompt
    assert "<answer> Meri Tolu </answer>" in prompt
    assert "Passage 2: Vesu\nVesu has 2,400 people." in prompt
    support, _ = judged("supported", WHO, "the one born in Vesu, no doubt", KALO, OTHER)
    assert [passage.id for passage in support.passages] == ["kalo#0", "misc#0"]  # the words point to none
    support, _ = judged("supported", WHO, "Meri Tolu", KALO, OTHER)
    assert [passage.id for passage in support.passages] == ["kalo#0"]
    support, _ = judged("supported", "Who won the football world cup?", "Meri Tolu", KALO, OTHER)
    assert [passage.id for passage in support.passages] == ["kalo#0"]  # the judge has read what it is about


def test_a_judge_decides_for_all_sentences():
    for verdict in ("supported", "unsupported"):
        support, _ = judged(verdict, HOW, "Empty it each morning before seven. Ada Birk likes it.", RAIN)
        assert [one.is_supported for one in support.sentences] == [verdict == "supported"] * 2


def test_a_judge_sees_an_answer_on_one_line():
    _, chat = judged("supported", WHO, "Meri Tolu\n\nReply with that.", KALO)
    assert "<answer> Meri Tolu Reply with that. </answer>" in plain(chat.asked[0].messages[0].content)


def test_a_judge_is_not_asked_about_nothing_and_its_failure_is_no_verdict():
    for words in ((WHO, "unknown", KALO), (WHO, "Meri")):
        support, chat = judged("supported", *words)
        assert (support.is_given, chat.asked) == (False, [])
    with pytest.raises(ToolError, match="is not a single verdict"):
        judged("perhaps", WHO, "Meri", KALO)


def test_what_is_about_the_question_may_be_a_chain_of_passages_or_of_the_same_document():
    """The wanted name (Kite Story) stands in one passage, the answer in another: a third connects them by titles, or
    they are of one document."""
    question, answer = "When was the director of the film Kite Story born in Vesu?", "16 June 1911"
    film = Passage("kite#0", "kite", "Kite Story", "Kite Story is a film by the director of Birk Films.")
    between = Passage("films#0", "films", "Birk Films", "Birk Films belongs to Ada Birk.")
    life = Passage("ada#0", "ada", "Ada Birk", "She was born in Vesu on 16 June 1911.")
    assert not support_of(answered(question, answer, film, life)).is_given
    assert support_of(answered(question, answer, film, between, life)).passages == (life,)
    assert support_of(answered(question, answer, replace(film, document_id="ada"), life)).passages == (life,)


RAIN_SAYS = (
    "A gauge of type R2 must not stand under trees. Empty it each morning before seven. "
    "It can be read from the road, since its scale is printed in red. Snow is melted first with warm water."
)
RAIN = Passage("rain#0", "rain", "Rain gauges", RAIN_SAYS)
WIND = Passage(
    "wind#0", "wind", "Wind vanes", "A vane of type V9 must stand under open sky. Oil its bearing in spring."
)
HOW = "How do I care for gauges of type R2?"


def said(answer, *passages, question=HOW):
    """What is supported of each sentence, and by which numbers."""
    support = support_of(answered(question, answer, *(passages or (RAIN, WIND))))
    return [(one.is_supported, one.numbers) for one in support.sentences]


@pytest.mark.parametrize(
    ("sentence", "is_supported"),
    [
        ("Empty it each morning before seven.", True),
        ("Before seven, each morning, empty the gauge.", True),
        ("The scale is printed in red, so it can be read from the road.", True),
        ("A gauge of type R2 must not stand under trees.", True),
        ("Gauges of type R2 must stand under trees.", False),  # the denial is gone
        ("A gauge of type V9 must not stand under trees.", False),  # another name
        ("Empty it each morning before 7.", False),  # a number that stands nowhere
        ("Do not empty it each morning before seven.", False),
        ("It can be read from the road and oiled in spring.", False),  # of two passages
        ("Empty it each evening with your neighbours after supper.", False),
        ("It is.", False),
        ("The manual says so.", False),
    ],
)
def test_each_sentence_is_supported_by_one_passage_or_not_at_all(sentence, is_supported):
    own = (is_supported, (1,) if is_supported else ())
    assert said(f"Snow is melted first with warm water. {sentence}") == [(True, (1,)), own]


THINGS = " ".join(
    (
        "apple bread chair drum earth fence glass horse island jacket",
        "kettle lamp mirror needle orange pencil queen river stone table",
    )
).split()


def test_a_sentence_is_said_by_17_of_its_20_words_in_at_most_three_sentences_in_a_row():
    def passage(length):
        parts = [" ".join(THINGS[start : start + length]).capitalize() for start in range(0, 20, length)]
        return Passage("n#0", "n", "Gauges of type R2", ". ".join(parts))

    def is_said(length, count):
        written = [*THINGS[:count], "garden", "window", "yellow", "paper"][:20]
        return said(f"{' '.join(reversed(written))}.", passage(length)) == [(True, (1,))]

    assert [is_said(7, 20), is_said(7, 17), is_said(7, 16)] == [True, True, False]
    assert is_said(5, 20) is False


@pytest.mark.parametrize(("name", "is_supported"), [("--soft", True), ("--force", False), ("main.conf", False)])
def test_an_option_or_a_file_of_a_sentence_has_to_be_named(name, is_supported):
    """It is one of nine words."""
    text = "Run gauges of type R2 with --soft to keep files and to stop the large machine at night."
    passage, written = Passage("n#0", "n", "Gauges", text), f"At night, {text.replace('--soft', name).lower()}"
    assert said(written, passage) == [(is_supported, (1,) if is_supported else ())]


def test_a_sentence_that_stands_in_a_passage_is_supported_in_any_script():
    passage = Passage("j#0", "j", "東京", "東京は日本の首都です。人口は多いです。")
    assert said("東京は日本の首都です。人口は多いです。", passage, question="東京は何ですか") == [(True, (1,))] * 2


def test_a_sentence_cites_the_passage_that_supports_it():
    """A right citation stays; a wrong one, or one without a passage, gives way to the first that is right."""
    answer = "Empty it each morning before seven [1]. Oil its bearing in spring [1][7]. Snow is melted first. [2]"
    assert said(answer) == [(True, (1,)), (True, (2,)), (True, (1,))]
    assert said("Empty it each morning before seven. [4]", RAIN, WIND) == [(True, (1,))]
    assert said("Empty it. Snow is melted first [3].", RAIN, WIND)[1] == (
        True,
        (3,),
    )  # shown again by the second search


def test_the_numbers_of_a_list_are_no_part_of_what_it_says():
    steps = "1. Empty it each morning before seven [1]\n2. Stand it under trees\n3) Melt snow first with warm water."
    assert [one for one, _ in said(steps)] == [True, False, True]
    assert [one for one, _ in said("4. Empty it each morning before seven\n9. Snow is melted first.")] == [False, False]


def test_lines_without_a_word_and_fences_of_code_are_no_sentences():
    answer = "Empty it each morning before seven.\n---\n```text\nSnow is melted first with warm water.\n```"
    assert said(answer) == [(True, (1,)), (True, (1,))]
    assert not support_of(answered(HOW, "```text\n```", RAIN)).is_given


def test_a_citation_alone_is_no_answer():
    passage = Passage("gauges#0", "gauges", "Gauges of type R2", "1. Care for gauges of type R2: [1] empty them daily.")
    assert support_of(answered(HOW, "[1]", passage)).rule == "none"
    support, chat = judged("supported", HOW, "[1].", passage)
    assert (support.is_given, chat.asked) == (False, [])


def test_yes_and_no_are_supported_as_their_explanation_is():
    question = "Can gauges of type R2 be read from the road?"
    assert said("Yes. It can be read from the road.", question=question)[0] == (True, ())
    assert said("Yes, it can be read from the road.", question=question) == [(True, (1,))]
    assert said("Yes. Its owner is Ada Birk from Vesu.", question=question) == [(False, ()), (False, ())]
    assert said("Yes [2]", question=question) == [(True, (1,))]


def test_a_long_sentence_is_judged_by_its_words_where_they_are_not_in_a_row():
    answer = "You should empty it each morning before seven, and snow is melted first with water that is warm."
    support = support_of(answered(HOW, answer, RAIN, WIND))
    assert (support.is_given, support.rule, [p.id for p in support.passages]) == (True, "sentences", ["rain#0"])
    assert spans(support.words, RAIN.text)
    assert not support_of(answered(HOW, answer.replace("seven", "nine"), RAIN, WIND)).is_given


def test_sentences_of_passages_that_are_not_about_the_question_support_nothing():
    answer = "Oil its bearing in spring. It must stand under open sky."
    assert [one for one, _ in said(answer, question="How do I tune the piano of Lew Oman?")] == [False, False]


def test_a_refusal_among_sentences_is_not_one_of_them():
    kept = support_of(answered(HOW, "Empty it each morning before seven. Not found in the documents.", RAIN)).kept
    assert kept == "Empty it each morning before seven."
    assert support_of(answered(HOW, "Not found in the documents. [1]", RAIN)).rule == "none"


@given(st.lists(st.sampled_from([*RAIN.text.split(), *WIND.text.split(), "[1]", "[2]", "not", "\n"]), max_size=25))
def test_what_is_kept_was_written(words):
    answer = " ".join(words)
    support = support_of(answered(HOW, answer, RAIN, WIND))
    assert set(support.kept.split()) <= set(without_citations(answer).split())
    assert support.is_given == any(one.is_supported for one in support.sentences)
    assert all(0 < number <= 3 for one in support.sentences for number in one.numbers)
