"""The chat page in headless Chromium, as somebody uses it. With EVOSEEK_SCREENSHOTS=DIR it leaves pictures there."""

import os
import socket
from pathlib import Path
from runpy import run_path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = "/usr/bin/chromium"
pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"needs {CHROMIUM}")
FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync"
WHO = "who is the mayor of Kalo?"
expect = playwright.expect

fixtures = run_path(str(Path(__file__).parents[1] / "serve" / "conftest.py"))
library, serving = fixtures["library"], fixtures["serving"]


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """`open_page(served, width=..., dark=...)`: the page of a server, with every message of its console."""
    contexts = []

    def open_page(served, *, width=1100, height=720, dark=False):
        size, scheme = {"width": width, "height": height}, "dark" if dark else "light"
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.told = []
        page.on("console", lambda message: page.told.append(message.text))
        page.on("dialog", lambda dialog: page.told.append(f"dialog {dialog.message}"))
        page.goto(served.url)
        expect(page.get_by_role("status")).to_have_text("Connected.")
        return page

    yield open_page
    for context in contexts:
        context.close()


def ask(page, question):
    page.get_by_label("Question").fill(question)
    page.keyboard.press("Enter")


def picture(page, name):
    if folder := os.environ.get("EVOSEEK_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"chat-{name}.png")


def test_ask_watch_the_searches_and_open_a_citation(serving, open_page):
    with serving() as served:
        page = open_page(served)
        ask(page, f"{WHO} wait")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        served.sampler.gate.set()
        expect(page.locator(".searches > li").first).to_contain_text("found)")
        expect(page.locator(".answer")).to_have_text("Meri Tolu")
        sure = page.locator(".answer + .sure")
        expect(sure).to_have_text("Sure 0.93: the probability that the model gives these words.")
        page.locator("article > .cited button").first.click()
        panel = page.get_by_label("Cited passage", exact=True)
        expect(panel).to_contain_text("The mayor of Kalo is Meri Tolu.")
        for name, value in (("File", "kalo.md"), ("Page", "2"), ("Heading", "People")):
            expect(panel.locator(f"dt:text-is('{name}') + dd")).to_have_text(value)
        picture(page, "wide")
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(page.locator("article > .cited button").first).to_be_focused()
        ask(page, "and say Lina")
        expect(page.locator(".answer").last).to_contain_text("Not found in the documents.")
        expect(sure).to_have_count(1)  # of an answer that is not shown there is none
        assert served.sampler.prompts[-1].count("Meri Tolu") == 1  # the conversation
        assert page.told == []


def test_the_header_counts_the_documents_and_examples_can_be_asked(serving, open_page):
    with serving() as served:
        page = open_page(served)
        expect(page.locator("#documents")).to_have_text("4 passages")
        picture(page, "empty")
        page.get_by_role("button", name="What does Kalo say about Weather?").click()
        expect(page.locator(".question")).to_have_text("What does Kalo say about Weather?")
        expect(page.locator("#examples")).to_be_hidden()


def test_an_error_is_in_sight_above_the_composer(serving, open_page):
    with serving() as served:
        page = open_page(served, width=390, height=500)
        for number in range(4):
            ask(page, WHO)
            expect(page.locator(".answer").nth(number)).to_have_text("Meri Tolu")
        ask(page, "break it")
        again = page.get_by_role("button", name="Ask again")
        expect(again).to_be_in_viewport(ratio=1)
        assert again.bounding_box()["y"] + again.bounding_box()["height"] <= page.locator("#ask").bounding_box()["y"]
        picture(page, "error")


def test_untrusted_text_stays_text(serving, open_page):
    with serving(refuses=False) as served:
        page = open_page(served)
        ask(page, "say Vesu <img src=x onerror=alert(2)><script>alert(3)</script>")
        expect(page.locator(".answer")).to_contain_text("Vesu")
        page.locator(".searches summary").first.click()
        page.get_by_role("button", name="Vesu").first.click()
        expect(page.get_by_label("Cited passage", exact=True)).to_contain_text("<img src=x onerror=alert(1)>")
        assert page.locator("img, article script").count() == 0
        assert page.told == []
        assert page.evaluate("fetch('https://example.org/').then(() => 'sent', () => 'refused')") == "refused"


def test_stop_an_answer(serving, open_page):
    with serving() as served:
        page = open_page(served)
        ask(page, "hang on")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".answer")).to_have_text("Stopped.")
        page.wait_for_function("fetch('metrics').then((r) => r.text()).then((t) => t.includes('evoseek_running 0.0'))")
        ask(page, WHO)
        expect(page.locator(".answer").last).to_have_text("Meri Tolu")


@pytest.mark.parametrize(
    ("tells", "words"),
    [(False, "The connection was lost"), (True, "The server was stopped before the answer was ready")],
)
def test_the_server_is_lost_or_stopped_and_comes_back(serving, open_page, tells, words):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(port=port, tells=tells) as served:
        page = open_page(served)
        ask(page, "hang on")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.locator(".answer")).to_contain_text(words, timeout=20_000)
    expect(page.get_by_role("status")).to_contain_text("does not answer")
    picture(page, "lost")
    with serving(port=port):
        expect(page.get_by_role("status")).to_have_text("Connected again.", timeout=20_000)
        ask(page, WHO)
        expect(page.locator(".answer").last).to_have_text("Meri Tolu")


def test_a_key_is_asked_for(serving, open_page):
    with serving(keys=["a-long-key-for-tests"]) as served:
        page = open_page(served)
        page.get_by_label("This server asks for a key.").fill("a-long-key-for-tests")
        page.keyboard.press("Enter")
        expect(page.locator("#unlock")).to_be_hidden()
        ask(page, WHO)
        expect(page.locator(".answer")).to_have_text("Meri Tolu")


def test_a_narrow_dark_screen(serving, open_page):
    with serving() as served:
        page = open_page(served, width=390, height=760, dark=True)
        ask(page, WHO)
        page.locator("article > .cited button").first.click()
        expect(page.get_by_label("Cited passage", exact=True)).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, "narrow")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Close the passage")).to_be_focused()
