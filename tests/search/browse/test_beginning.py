import asyncio

from evoseek.search.browse.beginning import PageBeginning
from evoseek.types import Page


def test_a_page_is_read_to_the_end_of_a_sentence_whatever_the_task():
    page = Page("http://a.test/", "Kalo", "Kalo is a city. Its mayor is Meri. It lies by a lake.")
    assert asyncio.run(PageBeginning(9).read(page, task="who ?", key="k")) == "Kalo is a city. Its mayor is Meri."
    assert asyncio.run(PageBeginning(99).read(page, task="who ?", key="k")) == page.text
