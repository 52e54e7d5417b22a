"""Questions in their natural order, from statements that ask in place."""

import pytest

from evoseek.questions.writers.english import WHOLE_END
from evoseek.questions.writers.fronting import fronted


@pytest.mark.parametrize(
    ("stem", "asked", "after", "question"),
    [
        ("The package includes ", "how many", " test modules", "how many test modules does the package include"),
        ("A table may have ", "how many", " columns by default", "how many columns may a table have by default"),
        ("Cursors are destroyed by ", "which", " method", "which method are Cursors destroyed by"),
        ("Marlow has directed ", "how many", " films since 1969", "how many films has Marlow directed since 1969"),
        ("Marlow is ", "what", "", "what is Marlow"),
        ("Marlow stars ", "who", "", "who does Marlow star"),
        ("Marlow wrote ", "what", " in 1907", "what did Marlow write in 1907"),
        ("Marlow moved to ", "where", "", "where did Marlow move to"),
        ("Marlow died ", "when", " at Oro Vale", "when did Marlow die at Oro Vale"),
        ("The view was added in ", "which version of Brill", "", "which version of Brill was the view added in"),
        ("The clerk carries ", "what", "", "what does the clerk carry"),
        ("Tall clerks carried ", "what", "", "what did tall clerks carry"),
        ("McKay clerks carried ", "what", "", "what did McKay clerks carry"),
        ("Danish clerks carried ", "what", "", "what did Danish clerks carry"),
        ("The Oro clerk carried ", "what", "", "what did the Oro clerk carry"),
    ],
)
def test_the_question_word_and_the_verb_come_first(stem: str, asked: str, after: str, question: str):
    assert fronted("Marlow", stem, asked, after) == question


@pytest.mark.parametrize(
    ("stem", "asked", "after"),
    [
        ("Marlow was the son of Ada Birk and the nephew of ", "who", ""),  # one of two that are joined
        ("Marlow was king from ", "when", " to 1907"),
        ("Marlow was founded in 1214 by Ada Birk and was destroyed by fire on ", "when", ""),
        ("Marlow is a town ", "where", ""),
        ("Marlow is the home of the poet ", "who", ""),  # which has a name of its own
        ("Marlow is a film based on a novel by ", "who", ""),
        ("Marlow was an actor in the north of ", "what", ""),
        ("Marlow has about ", "how many", " inhabitants"),
        ("Marlow has ", "how many", " of the wells"),
        ("Marlow was seen by ", "who", " who came back"),
        ("Change the table ordered by ", "what", ""),  # an instruction
        ("On success the call returns ", "what", ""),  # the subject is not what comes first
        ("The call that returns early uses ", "what", ""),
        ("The view previously obtained from the call returned ", "what", ""),  # may be a participle
        ("Marlow sings ", "what", ""),  # a verb that is not in the table
        ("Marlow uses ", "which", " call returns early"),
        ("The battle cost the lives of ", "how many", " men"),  # no verb, but a noun
    ],
)
def test_what_is_not_safe_stays_as_it_is(stem: str, asked: str, after: str):
    assert fronted("Marlow", stem, asked, after) is None


def test_a_comma_within_a_number_ends_no_clause():
    assert WHOLE_END.search(" at an altitude of 1,930 metres") is None
    assert WHOLE_END.search(" in 1907, at Oro") is not None
