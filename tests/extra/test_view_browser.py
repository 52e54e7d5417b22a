"""The viewer's page in headless Chromium: hostile text stays text, and everything is reached by keyboard."""

import json
import shutil

import pytest

from evoseek.report.view.html import make_page
from evoseek.report.view.source import RunSource

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")

ATTACKS = (
    "<script>hacked=1</script>",
    "</script><script>hacked=1</script>",
    "<img src=x onerror=hacked=1>",
    "<svg onload=hacked=1><animate onbegin=hacked=1 attributeName=x dur=1s>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<a href='javascript:hacked=1' id=index>click</a>",
    '" onmouseover="hacked=1" autofocus onfocus="hacked=1',
    "<style>*{display:none}</style><link rel=stylesheet href=http://evil.test/x.css>",
    "<base href=http://evil.test/><meta http-equiv=refresh content='0;url=http://evil.test'>",
    "<form id=main action=http://evil.test><input name=textContent></form>",
    "{{constructor.constructor('hacked=1')()}} ${hacked=1} <%= hacked=1 %> #{hacked=1}",
    "\u202eevil\u202c\u2066\u200b\x00\x1b[2J\x07 \ud83d",
    "x" * 200_000,
    "<!--<![CDATA[ --> ]]> <?php hacked=1 ?> &lt;script&gt; &#x3c;script&#x3e;",
    "__proto__",
)


def attacked(number, attack):
    """A line of trajectories.jsonl with an attack in every text."""
    text = f"{attack} {number}"
    role = ("solver", "proposer")[number % 2]
    return {
        "step": 1 + number // 10,
        "group": f"{text}/g",
        "outcome": {"reward": number / 50, "parts": {text: 1.0}} if number % 5 else {"invalid": attack, "detail": text},
        "id": text,
        "role": role,
        "question": {
            "id": text,
            "text": text,
            "golden_answers": [text],
            "metadata": {"title": text, "text": text, attack: text},
        },
        "stop_reason": "answered" if number % 3 else "max_turns",
        "answer": text,
        "failure": text,
        "policy_version": 0,
        "segments": [
            {"kind": "prompt", "text": text, "ids": [1]},
            {"kind": "action", "text": text, "ids": [2], "logprobs": [-0.5]},
            {"kind": "observation", "text": text, "ids": [3]},
        ],
        "actions": [{"tool_calls": [{"name": text, "arguments": {attack: text}}], "problem": text, "question": text}],
        "tool_results": [
            {
                "call": {"name": text, "arguments": {}},
                "text": f"not said {text}",
                "passages": [{"id": text, "document_id": text, "title": text, "text": text, "start": 0, "end": 1}],
            }
        ],
    }


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        yield started
        started.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=hacked=1>"
    directory.mkdir()
    rows = [attacked(number, ATTACKS[number % len(ATTACKS)]) for number in range(50)]
    (directory / "trajectories.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (directory / "metrics.jsonl").write_text('{"step": 1, "reward": 0.25, "<script>hacked=1</script>": 1}\n')
    (directory / "config.json").write_text(json.dumps({"run": {"system": ATTACKS[1]}, "policy": {"model": ATTACKS[2]}}))
    return directory


@pytest.fixture
def path(run, tmp_path, request):
    """The page, with its data inside, or in a folder beside it."""
    is_beside = getattr(request, "param", "inside") == "beside"
    page = make_page([RunSource.open(run), RunSource.open(run)], "view.data", inline=0 if is_beside else 10**9)
    page.write(tmp_path / "view.html")
    return tmp_path / "view.html"


@pytest.fixture
def page(browser, path):
    """The opened page; that nothing of it has executed or left is checked at the end."""
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    asked, errors, dialogs = [], [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page.goto(path.as_uri())
    page.wait_for_selector("main > *")
    yield page
    assert page.evaluate("typeof hacked") == "undefined"
    assert {url.split("/")[0] for url in asked} <= {"file:", "blob:"}
    assert (errors, dialogs) == ([], [])
    assert (
        page.locator(
            "main :is(script, img, iframe, link, base, form:not(.filters), style, a[href^='javascript'])"
        ).count()
        == 0
    )
    page.close()


def told(page, text):
    """Wait until a screen reader has been told this."""
    sync_api.expect(page.locator("#status")).to_have_text(text)


def open_list(page):
    page.get_by_role("link", name="Trajectories").click()
    page.wait_for_selector("#detail h2")


@pytest.mark.parametrize("path", ["inside", "beside"], indirect=True)
def test_fifty_pages_of_hostile_text_are_walked_and_stay_text(page):
    open_list(page)
    page.get_by_label("Colour tokens by").select_option("logprob")
    page.get_by_role("listbox").focus()
    for number in range(50):
        page.keyboard.press("ArrowDown" if number % 2 else "j")
        page.wait_for_selector("#detail .stage")
        page.evaluate("document.querySelectorAll('#detail details').forEach((one) => { one.open = true; })")
    page.wait_for_selector("#detail .segment", state="attached")
    assert page.evaluate("location.protocol") == "file:"
    assert page.locator(".row[aria-selected=true]").get_attribute("aria-posinset") == "51"


def test_marks_of_direction_and_controls_are_shown_by_their_numbers(page):
    open_list(page)
    page.get_by_label("Search", exact=True).fill("evil\u202c")
    told(page, "6 of 100 trajectories")
    text = page.locator(".row .asked").first.inner_text()
    assert text.startswith("⟨U+202E⟩evil⟨U+202C⟩⟨U+2066⟩⟨U+200B⟩⟨U+0000⟩⟨U+001B⟩[2J⟨U+0007⟩")


def test_long_lines_unfold(page):
    open_list(page)
    page.get_by_label("Search", exact=True).fill("x" * 100)
    told(page, "6 of 100 trajectories")
    page.get_by_role("listbox").focus()
    page.keyboard.press("Home")
    page.get_by_role("button", name="Show all 200,003 characters").first.click()
    assert page.evaluate(
        "[...document.querySelectorAll('#detail .untrusted')].some((one) => one.textContent.length > 2e5)"
    )


def test_filters_and_what_a_screen_reader_is_told(page):
    open_list(page)
    page.locator("#filter-invalid").select_option("only")
    told(page, "20 of 100 trajectories")
    page.locator("#filter-role").select_option("solver")
    page.locator("#filter-run").select_option("1")
    told(page, "5 of 100 trajectories")
    assert page.locator(".row").count() == 5
    page.locator("#filter-invalid").select_option("none")
    page.locator("#filter-least").fill("0.9")
    told(page, "2 of 100 trajectories")


def test_the_page_is_walked_by_keyboard(page):
    focused = "document.activeElement.textContent"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.get_by_role("link", name="Trajectories").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail h2")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "listbox"
    page.keyboard.press("End")
    page.wait_for_selector(".row[aria-selected=true][aria-posinset='100']")
    active = page.evaluate("document.activeElement.getAttribute('aria-activedescendant')")
    assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
    page.wait_for_timeout(300)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H2"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_runs_are_laid_side_by_side(page):
    page.get_by_role("link", name="Compare").click()
    page.wait_for_selector(".sides section:nth-child(2) .segment")
    assert page.locator(".sides section").count() == 2
    page.keyboard.press("j")
    page.wait_for_selector(".sides section:nth-child(2) .segment")


@pytest.mark.parametrize("name", ["toString", "constructor", "__proto__", "hasOwnProperty", "x", ""])
def test_an_address_of_no_view_shows_the_overview(page, name):
    page.evaluate(f"location.hash = {name!r}")
    sync_api.expect(page.locator("#tabs a[aria-current='page']")).to_have_text("Overview")
    assert page.locator("main > *").count()


def test_a_narrow_screen_has_one_column_and_no_scroll_sideways(page):
    page.set_viewport_size({"width": 360, "height": 740})
    for view in ("Overview", "Trajectories", "Compare"):
        page.get_by_role("link", name=view).click()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view


def test_data_of_another_page_are_refused(browser, run, tmp_path):
    path = tmp_path / "view.html"
    make_page([RunSource.open(run)], "view.data", inline=0).write(path)
    chunk = path.parent / "view.data" / "0-0.js"
    chunk.write_text('evoseekChunk("other","0-0","")\n')
    page = browser.new_page()
    page.goto(f"{path.as_uri()}#trajectories")
    page.get_by_text("belong to another page. Run evoseek view again.").first.wait_for()
    chunk.unlink()
    page.reload()
    page.get_by_text("The file 0-0.js is missing in view.data").first.wait_for()
    page.close()
