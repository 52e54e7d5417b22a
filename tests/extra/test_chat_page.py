"""The chat page in headless Chromium, as somebody uses it. With EVOSEEK_SCREENSHOTS=DIR it leaves pictures there, and
with EVOSEEK_AXE=axe.min.js (of the npm package axe-core) it looks for barriers."""

import os
import re
import socket
from pathlib import Path
from runpy import run_path

import pytest
from rich.console import Console
from tests.documents.test_documents import small_pdf

from evoseek.search.indexing import IndexPlan, build_index
from evoseek.search.opening import LiveIndex
from evoseek.serve.uploads import Uploads

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


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """An index of long documents, each with the answer in its middle."""
    folder, said = tmp_path_factory.mktemp("documents"), "The mayor of Kalo is Meri Tolu."
    (folder / "corpus" / "new").mkdir(parents=True)

    def around(text, line):
        lines = [line.format(number) for number in range(60)]
        return "\n\n".join([*lines[:30], text, *lines[30:]])

    long = around(f"## Mayor of Kalo\n\n{said} He was elected in spring.", "## Part {0}\n\nThe well number {0} is dry.")
    (folder / "corpus" / "guide.md").write_text(f"# Guide of Kalo\n\n{long}")
    page = around(
        f"<p>{said.replace('Kalo', 'Vesu')} It is a town.</p><script>alert(1)</script>", "<p>Road {} is long.</p>"
    )
    (folder / "corpus" / "vesu.html").write_text(f"<title>Vesu</title><body onload=alert(2)>{page}</body>")
    rows = "\n".join(f"Town {number},{number * 7}" for number in range(60))
    (folder / "corpus" / "towns.csv").write_text(f"town,people\n{rows}\n")
    pages = [f"The price of the harbour {number} is {number * 3}." for number in range(1, 301)]
    (folder / "corpus" / "harbours.pdf").write_bytes(small_pdf(*pages))
    build_index(folder / "corpus", folder / "index", IndexPlan(max_words=20), console=Console(quiet=True))
    return folder


def check_access(page):
    if axe := os.environ.get("EVOSEEK_AXE"):
        page.evaluate(Path(axe).read_text() + ";0")
        found = page.evaluate(
            "axe.run().then((run) => run.violations.map((one) => [one.id, one.nodes.map((n) => n.html)]))"
        )
        assert found == []


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
        check_access(page)
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
        page.locator(".searches").get_by_role("button", name="Vesu").first.click()
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
        check_access(page)
        picture(page, "narrow")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Close the passage")).to_be_focused()


def open_found(page, question, name):
    """Open a passage that was found, by its name."""
    ask(page, question)
    expect(page.locator(".answer").last).not_to_have_attribute("aria-busy", "true")
    page.locator(".searches summary").last.click()
    page.locator(".searches .cited button", has_text=name).first.click()
    panel = page.get_by_label("Cited passage", exact=True)
    expect(panel.locator("section")).not_to_have_count(1)  # what stands around it is there
    return panel


@pytest.fixture(scope="module")
def served_documents(serving, documents):
    index = LiveIndex(documents / "index")
    with serving(engine=index, library=index, uploads=Uploads(documents / "corpus" / "new", documents / "index")) as it:
        yield it


def test_a_citation_opens_its_document_at_the_marked_words(served_documents, open_page):
    page = open_page(served_documents, width=1280, height=800)
    ask(page, WHO)
    page.locator("article > .cited button", has_text="Guide").click()
    panel = page.get_by_label("Cited passage", exact=True)
    expect(panel.locator(".here mark")).to_have_text(["Meri Tolu"])
    expect(panel.locator("mark")).to_be_in_viewport()
    expect(panel).to_contain_text("The well number 27 is dry.")
    picture(page, "wide")
    expect(panel.get_by_text("The well number 2 is dry.")).to_have_count(0)
    while panel.get_by_role("button", name="Earlier").count():
        panel.get_by_role("button", name="Earlier").click()
        page.wait_for_timeout(300)
    expect(panel.get_by_text("The well number 2 is dry.")).to_have_count(1)
    check_access(page)
    link = panel.get_by_role("link", name="guide.md")
    assert "#:~:text=" in link.get_attribute("href")
    assert page.told == []


def test_an_original_page_runs_nothing_and_shows_the_words(served_documents, open_page):
    page = open_page(served_documents)
    panel = open_found(page, "who is the mayor of Vesu?", "Vesu")
    with page.expect_popup() as opened:
        panel.get_by_role("link", name="vesu.html").click()
    original = opened.value
    original.on("dialog", lambda dialog: page.told.append(dialog.message))
    expect(original.get_by_text("The mayor of Vesu is Meri Tolu.")).to_be_in_viewport()
    assert page.told == []


def test_a_row_of_a_table_opens_between_the_other_rows(served_documents, open_page):
    page = open_page(served_documents)
    panel = open_found(page, "people of Town 31? 217", "31")
    expect(panel.locator(".here")).to_contain_text("people: 217")
    expect(panel).to_contain_text("Town 32")
    assert page.told == []


def test_a_pdf_opens_at_its_page_with_the_passage_marked(served_documents, open_page):
    pytest.importorskip("pypdfium2", reason="needs pypdfium2")
    page = open_page(served_documents, width=1280, height=800)
    panel = open_found(page, "price of the harbour 150 ?", "page 150")
    expect(panel.get_by_role("img", name="Page 150, with the cited text marked")).to_be_in_viewport(timeout=60_000)
    assert panel.get_by_role("link", name="harbours.pdf").get_attribute("href").endswith("harbours.pdf#page=150")
    check_access(page)
    picture(page, "pdf")
    assert page.told == []


def test_conversations_are_kept_in_the_browser(served_documents, open_page):
    page = open_page(served_documents, width=1280, height=800)
    side = page.get_by_label("Conversations and uploads")
    for number in range(5):
        ask(page, f"{number}: {WHO}")
        expect(page.locator(".answer").nth(number)).to_have_text("Meri Tolu")
    expect(side.get_by_role("listitem")).to_have_count(1)
    page.get_by_role("button", name="New conversation").click()
    ask(page, "<b>who</b> say Lina")
    expect(page.locator(".answer")).to_have_text("Not found in the documents.")
    page.reload()
    expect(side.get_by_role("listitem")).to_have_count(2)
    side.get_by_role("button", name="<b>who</b> say Lina").click()
    side.get_by_role("button", name=f"0: {WHO}").click()
    expect(page.locator(".question")).to_have_count(5)
    page.locator("article > .cited button").last.click()
    expect(page.get_by_label("Cited passage", exact=True)).to_contain_text("Meri Tolu")
    ask(page, f"again {WHO}")
    expect(page.locator(".answer").nth(5)).to_have_text("Meri Tolu")
    assert "4: who is" in served_documents.sampler.prompts[-1]  # what was said before is sent again
    side.get_by_role("button", name="Rename").click()
    page.keyboard.type("The mayor")
    page.keyboard.press("Enter")
    with page.expect_download() as exported:
        side.get_by_role("button", name="Export The mayor").click()
    text = Path(exported.value.path()).read_text()
    assert text.startswith(f"# The mayor\n\n## 0: {WHO}\n\nMeri Tolu\n\nSources:\n\n- ")
    assert "guide.md, Mayor of Kalo\n\n  > " in text
    check_access(page)
    side.get_by_role("button", name="Delete The mayor").click()
    side.get_by_role("button", name="Delete The mayor").click()
    expect(side.get_by_role("listitem")).to_have_count(1)
    assert page.told == []


def test_documents_are_dropped_and_then_found(served_documents, open_page):
    page = open_page(served_documents, width=390, height=760)
    page.get_by_role("button", name="Conversations").click()
    sent = {"iru.md": b"# Iru\n\nThe mayor of Iru is Lina Meho.", "empty.txt": b"", "a.exe": b"MZ", "b.docx": b"PK"}
    sent |= {f"page-{number}.html": b"<p>Well %d is dry.</p>" % number for number in range(26)}
    files = [{"name": name, "mimeType": "", "buffer": data} for name, data in sent.items()]
    page.locator("#files").set_input_files(files)
    shown = ["iru.md 1 passage", "empty.txt not read; empty"]
    shown += [re.compile("a.exe not taken: Files of type .exe are not read"), re.compile("b.docx not read; ")]
    uploads = page.locator("#uploads li")
    expect(uploads).to_have_text([*shown, *(f"page-{n}.html 1 passage" for n in range(26))], timeout=600_000)
    check_access(page)
    picture(page, "upload")
    page.keyboard.press("Escape")
    ask(page, "who is the mayor of Iru?")
    expect(page.locator(".searches")).to_contain_text("Iru")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_keyboard_alone(served_documents, open_page):
    page = open_page(served_documents, width=1920, height=1000, dark=True)
    page.keyboard.type(WHO)
    page.keyboard.press("Enter")
    expect(page.locator(".answer")).to_have_text("Meri Tolu")
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.closest('article > .cited') !== null"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_label("Cited passage", exact=True)).to_be_focused()
    check_access(page)
    picture(page, "large")
