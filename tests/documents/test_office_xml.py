"""Office documents and books: what is struck out or hidden, raised and lowered words, and words as they are written."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.documents.test_archives import BOOK, CONTAINER, WORD, archive, docx, epub
from tests.documents.test_tables import workbook

from evoseek.documents.archives import parse_docx, parse_epub, parse_pptx
from evoseek.documents.formats import Parsed
from evoseek.documents.tables import parse_xlsx

pytest.importorskip("markitdown")


def told(parse: Callable[[bytes], Parsed], data: bytes) -> tuple[Parsed, list[str]]:
    """What a file holds, and what is reported of it."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        parsed = parse(data)
    return parsed, [text for one in found if (text := str(one.message)).startswith("hidden")]


def word(body: str, styles: str = "") -> bytes:
    """A Word document of this body."""
    more = {
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": f'<w:styles xmlns:w="{WORD}"><w:style w:type="paragraph" w:styleId="heading1">'
        f'<w:name w:val="heading 1"/></w:style>{styles}</w:styles>',
    }
    return docx(more=more)


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*runs: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{''.join(runs)}</w:p>"


@pytest.mark.parametrize(
    ("properties", "hidden"),
    [
        ("<w:strike/>", 0),
        ('<w:strike w:val="true"/>', 0),
        ("<w:dstrike/>", 0),
        ("<w:vanish/>", 1),
        ('<w:rStyle w:val="Old"/>', 0),
        ('<w:rStyle w:val="Older"/>', 0),
        ('<w:rStyle w:val="Secret"/>', 1),
    ],
)
def test_words_of_word_that_are_struck_out_or_hidden_are_left_out(properties: str, hidden: int) -> None:
    styles = "".join(
        f'<w:style w:type="character" w:styleId="{name}"><w:name w:val="{name}"/>{more}</w:style>'
        for name, more in (
            ("Old", "<w:rPr><w:strike/></w:rPr>"),
            ("Older", '<w:basedOn w:val="Old"/>'),
            ("Secret", "<w:rPr><w:vanish/></w:rPr>"),
        )
    )
    runs = (run("It lasts "), run("twel", properties), run("ve ", properties), run("thirty months."))
    parsed, reported = told(parse_docx, word(paragraph(*runs), styles))
    assert parsed.text == "It lasts thirty months."
    assert reported == ["hidden parts left out: 1 part"] * hidden


@pytest.mark.parametrize(
    "properties",
    ['<w:strike w:val="0"/>', '<w:vanish w:val="false"/>', '<w:rStyle w:val="Old"/><w:strike w:val="off"/>'],
)
def test_words_of_word_that_are_not_struck_out_are_read(properties: str) -> None:
    styles = '<w:style w:styleId="Old" w:type="character"><w:name w:val="Old"/><w:rPr><w:strike/></w:rPr></w:style>'
    assert told(parse_docx, word(paragraph(run("It lasts.", properties)), styles))[0].text == "It lasts."


def test_a_paragraph_style_and_a_row_can_hide_and_a_link_keeps_its_words() -> None:
    style = '<w:style w:styleId="Gone" w:type="paragraph"><w:name w:val="Gone"/><w:rPr><w:vanish/></w:rPr></w:style>'
    rows = "".join(
        f"<w:tr><w:trPr>{mark}</w:trPr>" + "".join(f"<w:tc>{paragraph(run(cell))}</w:tc>" for cell in cells) + "</w:tr>"
        for mark, cells in (
            ("", ("Depot", "Opened", "Manager")),
            ("<w:hidden/>", ("Secret", "1900", "Eli Voss")),
            ("", ("Aalby", "1958", "Ada Birk")),
        )
    )
    gone = paragraph(run("Gone."), properties='<w:pStyle w:val="Gone"/>')
    link = f'<w:p><w:hyperlink w:anchor="x">{run("A link")}</w:hyperlink></w:p>'
    parsed, reported = told(parse_docx, word(f"{gone}{link}<w:tbl>{rows}</w:tbl>", style))
    assert ("Gone" in parsed.text, "Secret" in parsed.text, "A link" in parsed.text) == (False, False, True)
    assert "| Depot | Opened | Manager |\n| --- | --- | --- |\n| Aalby | 1958 | Ada Birk |" in parsed.text
    assert reported == ["hidden parts left out: 2 parts"]


def test_raised_and_lowered_words_of_word_stay_apart_from_numbers() -> None:
    up, down = '<w:vertAlign w:val="superscript"/>', '<w:vertAlign w:val="subscript"/>'
    runs = ("10", run("6", up), " litres of H", run("2", down), "O, the 1", run("st", up), " of 101", run("2", down))
    made = paragraph(*(each if each.startswith("<") else run(each) for each in runs))
    assert parse_docx(word(made)).text == "10^6 litres of H2O, the 1st of 101_2"


def test_a_style_raises_words() -> None:
    style = '<w:style w:type="character" w:styleId="Up"><w:rPr><w:vertAlign w:val="superscript"/></w:rPr></w:style>'
    more = '<w:style w:type="character" w:styleId="Upper"><w:basedOn w:val="Up"/></w:style>'
    named, off = '<w:rStyle w:val="Upper"/>', '<w:rStyle w:val="Upper"/><w:vertAlign w:val="baseline"/>'
    made = paragraph(run("10"), run("6", named), run(" litres, 10"), run("6", off))
    assert parse_docx(word(made, style + more)).text == "10^6 litres, 106"


def test_a_raised_word_that_is_divided_is_one() -> None:
    up = '<w:vertAlign w:val="superscript"/>'
    made = paragraph(run("10"), run("-", up), "<w:proofErr/>", run("3", up), run(" bar, x"), run("1", up), run("2", up))
    assert parse_docx(word(made)).text == "10^-3 bar, x^12"


@pytest.mark.parametrize(
    "text",
    [
        "The file net_config_v2.py sets max_queue_size.",
        "Use *args and **kwargs in read_all_rows.",
        "# of units sold in May: 40",
        "## not a heading",
        "- item\n---",
        "1. no list, 2*3 = 6, a_b",
    ],
)
def test_words_are_as_they_are_written_and_no_heading(text: str) -> None:
    body = paragraph(run("Report"), properties='<w:pStyle w:val="heading1"/>') + paragraph(run(text))
    parsed = parse_docx(word(body))
    assert (parsed.title, [mark.heading for mark in parsed.marks]) == ("Report", ["Report"])
    assert " ".join(parsed.text.split()).endswith(" ".join(text.split()))
    book = parse_epub(epub({"second part.xhtml": "<p>x</p>", "first.xhtml": f"<h1>Report</h1><p>{text}</p>"}))
    assert [mark.heading for mark in book.marks] == ["Report"]
    assert " ".join(text.split()) in " ".join(book.text.split())


DEPOTS = (("Depot", "Opened", "Manager"), ("Tarnby", "1958", "Meri Tolu"), ("Corrin", "1974", "Ada Marsh"))


def word_table(rows: tuple[tuple[str, ...], ...]) -> bytes:
    made = "".join(f"<w:tr>{''.join(f'<w:tc>{paragraph(run(cell))}</w:tc>' for cell in row)}</w:tr>" for row in rows)
    return word(f"{paragraph(run('The firm has these depots in the north of the country.'))}<w:tbl>{made}</w:tbl>")


def test_the_first_row_of_a_plain_table_of_word_is_its_headings() -> None:
    parsed = parse_docx(word_table(DEPOTS))
    assert "| Depot | Opened | Manager |\n| --- | --- | --- |\n| Tarnby |" in parsed.text


def test_a_table_of_two_columns_of_word_has_headings_too() -> None:
    text = parse_docx(word_table((("Depot", "Manager"), ("Aalby", "Ada Birk"), ("Corrin", "Eli Voss")))).text
    assert "| Depot | Manager |\n| --- | --- |\n| Aalby |" in text


@pytest.mark.parametrize(
    "rows",
    [
        (("Name:", "Ada Birk"), ("Town:", "Aalby")),
        (("1", "2", "3"), ("4", "5", "6")),
        (("Aalby", "24 months", "3 bar"), ("Birkdal", "12 months", "4 bar")),
        (("open", "closed", "open"), ("open", "open", "closed")),
        (("Name", "Ada Birk"), ("Born", "3 May 1958"), ("Town", "Aalby"), ("Telephone", "555 1234")),
    ],
)
def test_a_first_row_of_word_that_is_like_the_others_is_no_heading(rows: tuple[tuple[str, ...], ...]) -> None:
    assert f"| {' | '.join(rows[0])} |\n| {' | '.join(rows[1])} |" in parse_docx(word_table(rows)).text


def slides() -> Any:
    presentation = pytest.importorskip("pptx").Presentation()
    for title in ("Prices", "Secret prices", "More"):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.notes_slide.notes_text_frame.text = f"Notes of {title}."
    return presentation


def saved(presentation: Any) -> bytes:
    data = io.BytesIO()
    presentation.save(data)
    return data.getvalue()


def test_hidden_slides_shapes_and_struck_words_of_a_presentation_are_left_out() -> None:
    presentation = slides()
    first, second, third = presentation.slides
    second._element.set("show", "0")
    words = first.placeholders[1].text_frame.paragraphs[0]
    for text, mark, value in (
        ("10", "", ""),
        ("6", "baseline", "30000"),
        (" parts ", "", ""),
        ("stale ", "strike", "sngStrike"),
    ):
        one = words.add_run()
        one.text = text
        one.font.bold = False
        if mark:
            one._r.get_or_add_rPr().set(mark, value)
    last = words.add_run()
    last.text = "# of units: net_config *args"
    box = third.shapes.add_textbox(0, 0, 100, 100)
    box.text_frame.text = "Hidden box"
    box._element.nvSpPr.cNvPr.set("hidden", "1")
    third.placeholders[1].text_frame.text = "# of units sold: 40"
    parsed, reported = told(parse_pptx, saved(presentation))
    assert "10^6 parts # of units: net_config *args" in parsed.text
    assert not any(word in parsed.text for word in ("stale", "Secret", "Hidden"))
    assert [(mark.page, mark.heading) for mark in parsed.marks if mark.heading] == [
        *((1, "Prices"), (1, "Notes:"), (3, "More"), (3, "Notes:"))
    ]
    assert (parsed.title, reported) == ("Prices", ["hidden parts left out: 1 slide, 1 part"])


def test_cells_of_a_presentation_are_as_they_are_written() -> None:
    presentation = slides()
    shape = presentation.slides[0].shapes.add_table(2, 3, 0, 0, 100, 100)
    for row, cells in enumerate((("Setting", "Default", "Unit"), ("max_queue_size", "*args", "10 %"))):
        for column, text in enumerate(cells):
            shape.table.cell(row, column).text = text
    parsed = parse_pptx(saved(presentation))
    assert "| Setting | Default | Unit |\n| --- | --- | --- |\n| max_queue_size | *args | 10 % |" in parsed.text


def test_merged_cells_of_a_presentation_are_repeated() -> None:
    presentation = pytest.importorskip("pptx").Presentation()
    shapes = presentation.slides.add_slide(presentation.slide_layouts[6]).shapes
    table = shapes.add_table(4, 3, 0, 0, 999, 999).table
    rows = (("Region", "Depot", "Valves"), ("North", "Aalby", "1|2"), ("", "Birkdal", "4"), ("South", "closed", ""))
    for number, row in enumerate(rows):
        for place, text in enumerate(row):
            table.cell(number, place).text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    table.cell(3, 1).merge(table.cell(3, 2))
    text = parse_pptx(saved(presentation)).text
    assert r"| North | Aalby | 1\|2 |" in text
    assert "| North | Birkdal | 4 |\n| South | closed | closed |" in text


def test_hidden_sheets_rows_columns_and_struck_cells_of_a_workbook_are_left_out() -> None:
    font = pytest.importorskip("openpyxl.styles").Font
    blocks = pytest.importorskip("openpyxl.cell.rich_text")
    inline = pytest.importorskip("openpyxl.cell.text").InlineFont

    def fill(sheet: Any) -> None:
        for row in (("Pump", "Price", "Cost", "Note"), ("A", 10, 900, "x"), ("B", 20, 901, "y"), ("C", 30, 902, "z")):
            sheet.append(row)
        sheet.row_dimensions[3].hidden = True
        sheet.column_dimensions["C"].hidden = True
        sheet["D4"].font = font(strike=True)
        struck, up = (
            blocks.TextBlock(inline(strike=True), "twelve "),
            blocks.TextBlock(inline(vertAlign="superscript"), "6"),
        )
        sheet["D2"] = blocks.CellRichText(["Lasts ", struck, "10", up, " hours"])
        for name, state in (("Pay", "hidden"), ("Keys", "veryHidden")):
            sheet.parent.create_sheet(name).append(["Name", "Secret"])
            sheet.parent[name].sheet_state = state

    parsed, reported = told(parse_xlsx, workbook(fill))
    assert [(row.place, row.text) for row in parsed.rows] == [
        ("Pumps, row 2", "Pump: A\nPrice: 10\nNote: Lasts 10^6 hours"),
        ("Pumps, row 4", "Pump: C\nPrice: 30"),
    ]
    assert reported == ["hidden parts left out: 1 row, 1 column, 2 sheets"]


def test_chapters_of_a_book_are_read_as_pages_are() -> None:
    chapter = (
        "<h1>Limits</h1><p>It makes 10<sup>6</sup> litres since <time>3 May 1958</time> for <del>twelve</del> thirty "
        '<a id="p9"/>years.</p><p hidden="">Secret.</p><table><tr><th>Region</th><th>Depot</th></tr>'
        '<tr><td rowspan="2">North</td><td>Aalby</td></tr><tr><td>Birkdal</td></tr></table>'
    )
    page = f'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head><body>{chapter}</body></html>'
    book = archive({"META-INF/container.xml": CONTAINER, "in/book.opf": BOOK, "in/first.xhtml": page})
    parsed, reported = told(parse_epub, book)
    assert "It makes 10^6 litres since 3 May 1958 for thirty years." in parsed.text
    assert "| Region | Depot |\n| --- | --- |\n| North | Aalby |\n| North | Birkdal |" in parsed.text
    assert ([mark.heading for mark in parsed.marks], reported) == (["Limits"], ["hidden parts left out: 1 element"])


def test_a_chapter_that_is_no_xml_is_read() -> None:
    parsed = parse_epub(epub({"second part.xhtml": "<p>x<br>y&nbsp;z</p>", "first.xhtml": "<h1>A &amp; B</h1>"}))
    assert parsed.text.split() == ["#", "A", "&", "B", "x", "y", "z"]


def test_a_document_with_a_large_picture_is_read() -> None:
    """Which is within the page that a library makes of it."""
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    links = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="p" Type="{relations}/image" Target="media/a.png"/></Relationships>'
    )
    picture = (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{drawing}/wordprocessingDrawing"><wp:docPr id="1" name="a" '
        f'descr="A pump"/><a:graphic xmlns:a="{drawing}/main"><a:graphicData><pic:pic xmlns:pic="{drawing}/picture">'
        f'<pic:blipFill><a:blip xmlns:r="{relations}" r:embed="p"/></pic:blipFill></pic:pic></a:graphicData>'
        "</a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )
    body = f"{paragraph(run('Before.'))}{picture}{paragraph(run('After.'))}"
    more = {
        "word/document.xml": f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        "word/_rels/document.xml.rels": links,
        "word/media/a.png": bytes(12_000_000),
    }
    assert parse_docx(docx(more=more)).text.split() == ["Before.", "A", "pump", "After."]
