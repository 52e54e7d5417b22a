"""The page of `evoseek review` and the verdicts on the chat page in headless Chromium, as somebody uses them, also by
the keyboard alone. With EVOSEEK_SCREENSHOTS=DIR it leaves pictures there."""

import os
from pathlib import Path
from runpy import run_path

import pytest

from evoseek.questions.feedback import FeedbackFile
from evoseek.types import Question

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
HERE = Path(__file__).parents[1]
chat = run_path(str(HERE / "extra" / "test_chat_page.py"))
pytestmark, WHO, ask, expect = chat["pytestmark"], chat["WHO"], chat["ask"], chat["expect"]
browser, open_page, library, serving = (chat[name] for name in ("browser", "open_page", "library", "serving"))
reviewing = run_path(str(HERE / "serve" / "test_review.py"))["reviewing"]

MERI = {
    "id": "meri",
    "title": "Meri Tolu",
    "text": "Meri Tolu (born 3 May 1961) has been the mayor of Kalo since 2014. Before that she was a shipwright in "
    "Vesu, where she led the rebuilding of the lighthouse after the storm of 1998.",
}
KALO = {"id": "kalo", "title": "Kalo", "text": "Kalo is a town by the sea. Its mayor is Meri Tolu; its market is old."}
HOSTILE = {"title": "<b>Vesu</b>", "text": "Vesu <img src=x onerror=alert(1)> is old."}
QUESTIONS = [
    Question("q0", "When was the mayor of Kalo born?", ("3 May 1961",), {"evidence": [KALO, MERI]}),
    Question("q1", "Who is the mayor of Kalo?", ("Meri Tolu",), {"evidence": ["kalo#1"]}),
    Question("q2", "Who won the football cup?", (), {"answerable": False}),
    Question("q3", "Is <i>Vesu</i> old?", ("<script>alert(2)</script>",), {"evidence": [HOSTILE]}),
    *(
        Question(f"q{n}", f"What is known of Vesu in {1990 + n}?", ("old",), {"evidence": ["vesu#0"]})
        for n in range(4, 30)
    ),
]


def picture(page, name):
    if folder := os.environ.get("EVOSEEK_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


@pytest.fixture
def review_page(browser, tmp_path, library):
    """`review_page(width=..., dark=...)`: the page of a review of thirty questions, the review, its server's thread."""
    held = []

    def opened(*, width=1100, height=720, dark=False, questions=QUESTIONS):
        review = reviewing(tmp_path, library, questions)
        url, own, thread = review.__enter__()
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        held.extend((context.close, lambda: review.__exit__(None, None, None)))
        page = context.new_page()
        page.told = []
        page.on("console", lambda message: page.told.append(message.text))
        page.on("dialog", lambda dialog: page.told.append(f"dialog {dialog.message}"))
        page.goto(url)
        expect(page.locator("#question")).not_to_be_empty()
        return page, own, thread

    yield opened
    for close in held:
        close()


def number_of(review, id):
    return next(number for number, question in enumerate(review.questions) if question.id == id)


def go(page, review, id):
    """Show a question; its number among the thirty."""
    number = number_of(review, id)
    page.locator("#marks button").nth(number).click()
    expect(page.locator("#question")).to_have_text(review.questions[number].text)
    return number


def test_a_review_by_the_keyboard_alone(review_page, tmp_path):
    page, review, thread = review_page()
    texts = [question.text for question in review.questions]
    keys = ["r", "w", "u"] * 10
    for number, key in enumerate(keys):
        expect(page.locator("#question")).to_have_text(texts[number])
        page.keyboard.press(key)
    expect(page.locator("#share")).to_contain_text("True: 0.500 [0.299, 0.701] (10 right, 10 wrong; 10 unclear")
    expect(page.locator("#done")).to_contain_text("To judge more, start the command again with a higher --count.")
    picture(page, "review-result")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#question")).to_have_text(texts[29])
    expect(page.get_by_role("button", name="Unclear", exact=False).last).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("b")
    expect(page.locator("#question")).to_have_text(texts[28])
    page.keyboard.press("r")
    expect(page.locator("#question")).to_have_text(texts[29])
    expect(page.get_by_role("status")).to_have_text("30 of 30 judged")
    assert review.verdicts[28] == "right"
    page.keyboard.press("Tab")  # from the question to the verdicts
    expect(page.locator("#back")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#finish")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Finished")
    thread.join(10)
    assert not thread.is_alive()
    assert page.told == []


def test_a_question_is_shown_with_its_passages(review_page):
    page, review, _ = review_page()
    for number, key in enumerate("rrwu"):
        page.keyboard.press(key)
        expect(page.get_by_role("status")).to_have_text(f"{number + 1} of 30 judged")
    go(page, review, "q0")
    expect(page.locator("#answer")).to_have_text("3 May 1961")
    expect(page.locator(".passage")).to_have_count(2)
    expect(page.locator(".passage mark")).to_have_text("3 May 1961")
    picture(page, "review-wide")
    go(page, review, "q2")
    expect(page.locator("#answer")).to_have_text("(The documents do not answer it.)")
    expect(page.locator("#note")).to_be_visible()
    assert page.told == []


def test_texts_stay_texts(review_page):
    page, review, _ = review_page()
    go(page, review, "q3")
    expect(page.locator("#answer")).to_have_text("<script>alert(2)</script>")
    expect(page.locator(".passage")).to_contain_text("<b>Vesu</b>")
    expect(page.locator(".passage")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("img, article script, article b, article i").count() == 0
    assert page.told == []


def test_a_narrow_dark_screen_shows_all_without_scrolling_sideways(review_page):
    page, review, _ = review_page(width=390, height=760, dark=True)
    number = go(page, review, "q0")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for name in ("Back", "Right", "Wrong", "Unclear"):
        expect(page.locator("#keys").get_by_role("button", name=name)).to_be_in_viewport(ratio=1)
    picture(page, "review-narrow")
    page.locator("#right").click()
    expect(page.get_by_role("status")).to_have_text("1 of 30 judged")
    assert review.verdicts == {number: "right"}


def test_a_lost_server_is_said_and_no_verdict_is_taken_twice(review_page):
    page, review, _ = review_page(questions=QUESTIONS[:2])
    page.keyboard.press("r")
    expect(page.get_by_role("status")).to_have_text("1 of 2 judged")
    page.route("**/1", lambda route: route.abort())
    page.keyboard.press("w")
    expect(page.get_by_role("status")).to_contain_text("The server does not answer")
    assert review.verdicts == {0: "right"}


def test_a_narrow_header_has_the_status_on_a_line_of_its_own(review_page):
    page, _, _ = review_page(width=390, height=760, questions=QUESTIONS[:2])
    page.keyboard.press("r")
    expect(page.get_by_role("status")).to_have_text("1 of 2 judged")
    assert page.locator("header").bounding_box()["height"] < 80
    heights = {page.locator("#marks button").nth(number).bounding_box()["height"] for number in range(2)}
    assert len(heights) == 1  # a sign beside a number, not below it
    page.route("**/state", lambda route: route.abort())
    page.keyboard.press("b")
    expect(page.get_by_role("status")).to_contain_text("The server does not answer")
    assert page.locator("header").bounding_box()["height"] < 130


def test_the_marks_of_many_questions_leave_the_question_its_place(review_page):
    many = [Question(f"q{n}", f"What is {n}?", ("old",)) for n in range(30)]
    page, _, _ = review_page(width=700, height=500, questions=many)
    page.evaluate("state.verdicts = Array(600).fill(null); mark()")
    assert page.locator("#log").bounding_box()["height"] > 250


def test_another_tab_shows_what_was_judged_in_the_first(review_page):
    page, review, _ = review_page(questions=QUESTIONS[:2])
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator("#question")).not_to_be_empty()
    page.keyboard.press("r")
    expect(page.locator("#question")).to_have_text(review.questions[1].text)
    page.keyboard.press("w")
    expect(page.locator("#share")).to_contain_text("1 right, 1 wrong")
    other.keyboard.press("u")
    expect(other.get_by_role("status")).to_have_text("2 of 2 judged")
    expect(other.locator("#wrong")).to_have_attribute("aria-pressed", "true")
    for number in (1, 0):
        page.keyboard.press("b")
        expect(page.locator("#marks [aria-current]")).to_have_text(str(number + 1))
    expect(page.locator("#unclear")).to_have_attribute("aria-pressed", "true")
    assert review.verdicts == {0: "unclear", 1: "wrong"}


def test_a_page_of_an_earlier_start_says_where_the_review_is(review_page):
    page, review, _ = review_page(questions=QUESTIONS[:2])
    page.route("**/0", lambda route: route.continue_(url=page.url.replace(page.url.split("/")[3], "x" * 22) + "0"))
    page.keyboard.press("r")
    expect(page.get_by_role("status")).to_contain_text("Open the address that the command prints now")
    assert review.verdicts == {}


def test_the_end_says_what_becomes_of_the_verdicts(review_page):
    page, _, thread = review_page(questions=QUESTIONS[:2])
    page.keyboard.press("r")
    expect(page.get_by_role("status")).to_have_text("1 of 2 judged")
    page.keyboard.press("q")
    expect(page.locator("#done")).to_have_text("Not all are judged. The same command resumes.")
    expect(page.locator("#tests")).to_contain_text("which evoseek eval scores and training leaves out")
    expect(page.locator("#then")).to_be_hidden()
    thread.join(10)


def test_a_text_from_right_to_left_begins_at_the_right(review_page):
    page, _, _ = review_page(questions=[Question("q", "من هي عمدة كالو؟", ("ميري",))])
    starts = page.evaluate(
        """() => {
            const range = document.createRange();
            range.selectNodeContents(document.getElementById("question"));
            const text = range.getBoundingClientRect(), box = document.getElementById("item").getBoundingClientRect();
            return [box.right - text.right, text.left - box.left];
        }"""
    )
    assert starts[0] < 2 < starts[1]


@pytest.fixture
def file(tmp_path):
    (tmp_path / "my-project").mkdir()
    return FeedbackFile(tmp_path / "my-project" / "feedback.jsonl")


def test_an_answer_is_judged_on_the_chat_page_by_the_keyboard(serving, open_page, file):
    with serving(feedback=file) as served:
        page = open_page(served)
        expect(page.locator("#kept")).to_contain_text("is kept with its question in my-project/feedback.jsonl")
        ask(page, WHO)
        expect(page.locator(".answer")).to_have_text("Meri Tolu")
        page.get_by_role("button", name="It is there: ...").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_label("The right answer")).to_be_focused()
        page.keyboard.type("Lina")
        page.keyboard.press("Tab")
        page.keyboard.type("kalo.md, page 3")
        picture(page, "feedback-wide")
        page.keyboard.press("Enter")
        expect(page.get_by_text("Kept, thank you.")).to_be_visible()
        (kept,) = file.read()
        assert (kept.verdict, kept.right_answer, kept.note) == ("wrong", "Lina", "kalo.md, page 3")
        expect(page.get_by_role("button", name="It is there: ...")).to_be_focused()
        page.get_by_role("button", name="Right", exact=True).click()
        expect(page.get_by_role("button", name="Right", exact=True)).to_have_attribute("aria-pressed", "true")
        assert [one.verdict for one in file.read()] == ["right"]
        assert page.told == []


def test_judging_on_a_narrow_dark_screen_and_what_the_server_refuses(serving, open_page, file, monkeypatch):
    with serving(feedback=file) as served:
        page = open_page(served, width=390, height=760, dark=True)
        ask(page, WHO)
        page.get_by_role("button", name="It is there: ...").click()
        expect(page.get_by_label("Where to look")).to_be_in_viewport()
        ink = page.evaluate("getComputedStyle(document.body).color")
        expect(page.get_by_label("Where to look")).to_have_css("color", ink)  # not the soft colour of the labels
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        picture(page, "feedback-narrow")
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_label("The right answer")).to_be_focused()
        assert file.read() == []
        monkeypatch.setattr("evoseek.questions.feedback.MAX_LINES", 0)
        page.get_by_role("button", name="Wrong").click()
        expect(page.locator(".judge + .note")).to_contain_text("The verdict was not kept")


def test_the_reply_to_a_verdict_is_in_sight_above_the_composer(serving, open_page, file):
    with serving(feedback=file) as served:
        page = open_page(served, width=390, height=500)
        for number in range(2):
            ask(page, WHO)
            expect(page.locator(".answer").nth(number)).to_have_text("Meri Tolu")
        assert page.locator("header").bounding_box()["height"] < 80
        page.get_by_role("button", name="Right", exact=True).last.click()
        kept = page.get_by_text("Kept, thank you.")
        expect(kept).to_be_in_viewport(ratio=1)
        assert kept.bounding_box()["y"] + kept.bounding_box()["height"] <= page.locator("#ask").bounding_box()["y"]


def test_a_server_that_keeps_nothing_shows_no_verdicts(serving, open_page):
    with serving() as served:
        page = open_page(served)
        ask(page, WHO)
        expect(page.locator(".answer")).to_have_text("Meri Tolu")
        expect(page.get_by_role("button", name="Right")).to_have_count(0)
        expect(page.locator("#kept")).to_be_hidden()
