"""The generated world's web site: what can be read in its pages, and where its links lead."""

import re
from collections import Counter

import pytest
import trafilatura
from hypothesis import given, settings
from hypothesis import strategies as st

from evoseek.world.grammar import PHRASINGS, fact_text
from evoseek.world.site import ROBOTS, ROWS, Site
from evoseek.world.world import RELATIONS, TYPES, Fact, World

WORLD = World.generate(3, 200, "train")
SITE = Site(WORLD, 0)
ARTICLES = [
    (entity, path, facts)
    for entity in range(len(WORLD))
    for path, facts in zip((SITE.url_path(entity), f"{SITE.url_path(entity)}/2"), SITE.pages(entity), strict=False)
]
LISTS = [
    f"/list/{kind}/{number + 1}" for kind, known in WORLD.by_type.items() for number in range(-(-len(known) // ROWS))
]
PAGES = {path: SITE.page(path) for path in ("/", "/about", *LISTS, *(path for _, path, _ in ARTICLES))}


def told(text: str) -> list[Fact]:
    """Whatever is stated in the plain phrasing, by whole sentences."""
    sentences = (sentence.strip() for sentence in re.split(r"(?<=\.)\s", text))
    found = (re.fullmatch(r"([A-Z]\w+(?: [A-Z]\w+)?)'s (\w+) is ([^.|]+)\.", sentence) for sentence in sentences)
    return [Fact(*match.groups()) for match in found if match]


def links(html: str) -> list[str]:
    return re.findall(r'href="([^"]+)"', html)


def opened(path: str) -> tuple[str, int]:
    """Where a path leads in the end."""
    page = SITE.page(path)
    return opened(page.location) if page.location else (path, page.status)


# What can be read


def test_all_facts_of_a_whole_world_can_be_read_in_the_text_extracted_from_their_page_and_nothing_else():
    seen = []
    for _, path, facts in ARTICLES:
        text = trafilatura.extract(PAGES[path].html)
        assert told(text) == facts
        assert len(text.split()) <= 120
        seen += facts
    assert Counter(seen) == Counter(fact for entity in range(len(WORLD)) for fact in WORLD.facts(entity))


def test_more_recall_brings_in_no_facts_and_nothing_of_what_surrounds_the_article():
    for _, path, facts in ARTICLES[::8]:
        html = PAGES[path].html
        text = trafilatura.extract(html, include_comments=False, favor_recall=True)
        assert told(text) == facts
        for noise in ("cookies", "copied freely", "Talk", "Every", re.findall(r'advertisement"><p>(.*?)</p>', html)[0]):
            assert noise in html
            assert noise not in text


def test_the_first_seventy_words_of_a_page_hold_all_its_facts():
    for _, path, facts in ARTICLES[::8]:
        assert told(" ".join(trafilatura.extract(PAGES[path].html).split()[:70])) == facts


def test_the_other_sentences_state_nothing_in_any_phrasing():
    forms = re.compile(
        "|".join(
            re.escape(fact_text("A", relation, "B", phrasing)).replace("A", ".+").replace("B", ".+")
            for phrasing in range(len(PHRASINGS))
            for relation in RELATIONS
        ),
        re.IGNORECASE,
    )
    texts = {text for _, path, _ in ARTICLES for text in re.findall(r"<p>(.*?)</p>", PAGES[path].html)}
    sentences = {found for text in texts for found in re.findall(r"\S[^.!]*[.!]", text.replace("&#39;", "'"))}
    facts = {fact_text(f.subject, f.relation, f.object) for _, _, facts in ARTICLES for f in facts}
    assert {sentence for sentence in sentences if forms.fullmatch(sentence)} == facts
    assert len(sentences - facts) > len(WORLD)


def test_an_article_says_what_it_is_about_and_has_an_infobox_with_links_to_what_has_an_article():
    film = WORLD.by_type["film"][0]
    html = PAGES[SITE.url_path(film)].html
    assert f"{WORLD.names[film]} is a film." in html
    for fact in SITE.pages(film)[0]:
        value = fact.object
        if fact.relation != "year":
            value = f'<a href="{SITE.url_path(WORLD.objects[fact.relation][film])}">{value}</a>'
        assert f"<tr><th>{fact.relation}</th><td>{value}</td></tr>" in html


def test_the_share_of_second_pages_is_as_told():
    both = [len(Site(WORLD, 1, second_page=share).pages(e)) for share in (0.0, 1.0) for e in range(len(WORLD))]
    assert Counter(both) == {1: 200 + sum(len(WORLD.facts(e)) == 1 for e in range(len(WORLD))), 2: both.count(2)}
    assert 0.2 < sum(len(SITE.pages(e)) == 2 for e in range(len(WORLD))) / len(WORLD) < 0.4


# Where everything is


def test_paths_are_all_different_and_all_open():
    assert len(PAGES) == 2 + len(LISTS) + len(ARTICLES)
    assert {page.status for page in PAGES.values()} == {200}


def test_entities_of_one_name_have_articles_of_their_own():
    shared = [entity for entity, name in enumerate(WORLD.names) if WORLD.names.count(name) > 1]
    assert shared
    assert len({SITE.url_path(entity) for entity in shared}) == len(shared)
    for entity in shared:
        assert SITE.url_path(entity).endswith(f"-{entity}")
        assert f"{WORLD.names[entity]} is a {WORLD.types[entity]}." in PAGES[SITE.url_path(entity)].html


def test_every_entity_is_in_a_list_of_its_type_and_every_list_can_be_reached_from_the_front_page():
    reached, new = set(), {"/"}
    while new:
        reached |= new
        new = {link for path in new for link in links(PAGES[path].html) if link in PAGES} - reached
    assert reached == set(PAGES)
    for kind in TYPES:
        rows = re.findall(r"<td><a href=\"([^\"]+)\"", "".join(PAGES[p].html for p in PAGES if f"/list/{kind}/" in p))
        assert rows == [SITE.url_path(entity) for entity in WORLD.by_type[kind]]


def test_old_addresses_lead_to_the_article_over_one_or_two_redirects():
    slug = SITE.url_path(5)
    assert (SITE.page(f"/wiki{slug}").status, SITE.page(f"/wiki{slug}").location) == (301, slug)
    assert (SITE.page(f"/archive{slug}").status, SITE.page(f"/archive{slug}").location) == (302, f"/wiki{slug}")
    assert opened(f"/archive{slug}") == (slug, 200)


def test_articles_have_links_that_are_dead_and_links_that_robots_are_to_leave_alone():
    ends = {path: opened(path)[1] for page in PAGES.values() for path in links(page.html)}
    assert {path.split("/")[1] for path, status in ends.items() if status == 404} == {"talk", "offer"}
    assert "Disallow: /edit/\n" in ROBOTS
    assert opened(f"/edit{SITE.url_path(0)}")[1] == 200


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(st.text(), st.lists(st.sampled_from(["list", "city", "1", "2", "0", "9" * 5000, "²", ""])).map("/".join))
)
def test_every_path_has_an_answer(path):
    page = SITE.page(path)
    assert page.status in (200, 404)
    assert page.html


def test_the_same_seed_gives_the_same_site_and_another_seed_another():
    again, other = Site(WORLD, 0), Site(WORLD, 1)
    some = [path for _, path, _ in ARTICLES[:40]]
    assert [again.page(path) for path in reversed(some)] == [PAGES[path] for path in reversed(some)]
    assert [other.page(path) for path in some] != [PAGES[path] for path in some]


# Searching


def test_what_is_indexed_leads_to_the_page_that_states_it_and_some_of_it_to_nothing():
    ends = Counter()
    for passage in SITE.passages():
        path, status = opened(passage.id)
        ends[passage.id.split("/")[1] if passage.id.startswith(("/wiki", "/old")) else "", status] += 1
        if status == 200:
            html = PAGES[path].html.replace("&#39;", "'")
            assert all(sentence in html for sentence in re.findall(r"[^.]+\.", passage.text))
            assert path.startswith(SITE.url_path(int(passage.document_id)))
    assert set(ends) == {("", 200), ("wiki", 200), ("old", 404)}
    assert 5 <= ends["wiki", 200] <= 40
    assert 1 <= ends["old", 404] <= 25


def test_a_snippet_says_what_kind_of_thing_it_is_and_the_fact_for_a_share_of_the_questions():
    asked = [(entity, fact) for entity in range(len(WORLD)) for fact in WORLD.facts(entity)]

    def tells(site):
        found = [site.snippet(entity, f"{fact.subject.lower()} 's {fact.relation} ?") for entity, fact in asked]
        for text, (entity, fact) in zip(found, asked, strict=True):
            assert text.startswith(f"{WORLD.names[entity]} is a {WORLD.types[entity]}.")
            assert told(text) in ([], [fact])
        return sum(bool(told(text)) for text in found) / len(asked)

    assert tells(Site(WORLD, 0, told=0.0)) == 0.0
    assert tells(Site(WORLD, 0, told=1.0)) == 1.0
    assert tells(SITE) == pytest.approx(0.15, abs=0.05)
    assert told(Site(WORLD, 0, told=1.0).snippet(0, WORLD.names[0])) == []
