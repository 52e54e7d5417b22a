from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evoseek.selfplay.tasks import SearchChain, follow_back
from evoseek.types import Passage


def passage(title: str, text: str) -> Passage:
    return Passage(f"{title}#0", title, title, text)


CHAIN = [
    passage("Meri", "Meri was born in 1950."),
    passage("Kalo", "Kalo's mayor is Meri."),
    passage("Nida", "Nida's twin town is KALO."),
    passage("Tolu", "Tolu lies in Nida."),
]


def find_in(passages: Sequence[Passage], query: str) -> list[Passage]:
    """Passages of that title first, then those that mention it: an engine that is always right."""
    titled = [one for one in passages if one.title.casefold() == query.casefold()]
    return titled + [one for one in passages if query.casefold() in one.text.casefold() and one not in titled]


@pytest.mark.parametrize(("answer", "searches"), [("Meri", 3), ("Kalo", 2), ("nida", 1), ("Tolu", 0), ("Zumi", 0)])
def test_one_gets_as_far_back_as_passages_mention_each_other(answer: str, searches: int) -> None:
    assert follow_back(answer, lambda query: find_in(CHAIN, query), most=9) == SearchChain(answer, searches)


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_no_further_than_asked(most: int) -> None:
    asked: list[str] = []
    follow_back("Meri", lambda query: asked.append(query) or find_in(CHAIN, query), most)
    assert asked == ["meri", "kalo", "nida"][:most]


def test_a_passage_that_does_not_mention_what_was_searched_for_leads_nowhere() -> None:
    """Whatever an engine ranks first."""
    assert follow_back("Meri", lambda _: [passage("Kalo", "Kalo is a town.")], most=4).searches == 0


@pytest.mark.parametrize(
    ("answer", "text", "is_mentioned"),
    [
        ("art", "A party of many.", False),
        ("art", "The ART of war.", True),
        ("Lima", "The climate is mild.", False),
        ("Kalo", "(Kalo's mayor)", True),
        ("Saint-Denis", "in saint Denis", True),
        ("東京", "東京都の人口", True),  # a script without spaces
        ("?", "who ?", False),
    ],
)
def test_only_whole_words_are_a_mention(answer: str, text: str, is_mentioned: bool) -> None:
    assert follow_back(answer, lambda _: [passage("Zumi", text)], most=1) == SearchChain(answer, int(is_mentioned))


def test_one_does_not_walk_in_circles() -> None:
    circle = [passage("Kalo", "Kalo is near Nida."), passage("Nida", "Nida is near Kalo.")]
    assert follow_back("Kalo", lambda query: find_in(circle, query), most=9).searches == 1


def test_the_first_that_is_new_is_followed() -> None:
    branching = [*CHAIN, passage("Vesu", "Vesu's mayor is Meri too.")]
    assert follow_back("Meri", lambda query: find_in(branching, query), most=9).searches == 3
    assert follow_back("Meri", lambda query: find_in(branching[::-1], query), most=9).searches == 1


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("abcdef")), st.integers(0, 8))
def test_never_more_searches_than_there_are_passages(mentions: dict[str, str], most: int) -> None:
    passages = [passage(title, other) for title, other in mentions.items()]
    lead = follow_back("a", lambda query: find_in(passages, query), most)
    assert 0 <= lead.searches <= min(most, len(passages))
