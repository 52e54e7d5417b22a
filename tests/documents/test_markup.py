"""What elements of a page mean for its text: nothing that the page shows is lost or becomes something else."""

from __future__ import annotations

import warnings

import pytest

from evoseek.documents.formats import parse_html
from evoseek.documents.markup import lowered, raised

AROUND = "This paragraph has a good number of words, so that the page is taken for what it is, a text about pumps."


def page(body: str) -> str:
    """The text of a page between two paragraphs of words."""
    source = f"<html lang=en><head><title>Guide</title></head><body><h1>Guide</h1><p>{AROUND}</p>{body}<p>{AROUND}</p>"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = parse_html(source.encode()).text
    return "\n".join(line.strip() for line in text.split(AROUND)[1].strip().split("\n"))


def table(rows: str) -> list[str]:
    return page(f"<table>{rows}</table>").split("\n")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("makes 10<sup>6</sup> litres", "makes 10^6 litres"),
        ("at 40<sup>1</sup> bar", "at 40^1 bar"),
        ("makes 10<span style='font-size:8pt; vertical-align: super'>6</span> litres", "makes 10^6 litres"),
        ("of H<span style='vertical-align:sub'>2</span>O", "of H2O"),
        ("of 10<sup>-6</sup> m", "of 10^-6 m"),
        ("is 2<sup>n+1</sup> long", "is 2^(n+1) long"),
        ("is 10<sup>6</sup>5 long", "is 10^(6)5 long"),
        ("an area of 5 m<sup>2</sup> here", "an area of 5 m^2 here"),
        ("the pump<sup>1, 2</sup> runs", "the pump^(1, 2) runs"),
        ("in 1958<sup><a href='#n1'>3</a></sup> it opened", "in 1958[3] it opened"),
        ("in 1958<sup><a href='#n1'>[3]</a></sup> it opened", "in 1958[3] it opened"),
        ("<b>10</b><sup>6</sup> litres", "10^6 litres"),
        ("<b>10<sup>6</sup></b> litres", "10^6 litres"),
        ("the 1<sup>st</sup> and 22<sup>nd</sup> pump", "the 1st and 22nd pump"),
        ("le 2<sup>e</sup>, M<sup>me</sup> Birk, n<sup>o</sup> 5", "le 2e, Mme Birk, no 5"),
        ("a price<sup>*</sup> of Kalo<sup>®</sup>", "a price* of Kalo®"),
        ("is 3<sup>1</sup>/<sub>2</sub> long", "is 3 1/2 long"),
        ("of <sup>235</sup>U", "of 235U"),
        ("of H<sub>2</sub>O and P<sub>max</sub>", "of H2O and Pmax"),
        ("is 101<sub>2</sub> or log<sub>10</sub>100", "is 101_2 or log_(10)100"),
    ],
)
def test_raised_and_lowered_signs_are_no_digits_of_what_stands_before_them(source: str, text: str) -> None:
    assert page(f"<p>It {source} in all.</p>") == f"It {text} in all."


@pytest.mark.parametrize("before", ["10", "1958", "3.5"])
@pytest.mark.parametrize("sign", ["6", "12", "-3", "n"])
def test_no_sign_makes_another_number(before: str, sign: str) -> None:
    assert (before + raised(before, sign)).replace("^", " ").split()[0] == before
    assert before + lowered(before, "2") != f"{before}2"


ELEMENTS = """abbr b bdi big cite code data dfn em font i ins kbd label mark output samp small span strong sub sup time
tt u var"""


@pytest.mark.parametrize("element", ELEMENTS.split())
def test_every_element_of_running_text_keeps_its_words(element: str) -> None:
    assert page(f"<p>It was <{element}>Zebra Nine</{element}> in May.</p>") == "It was Zebra Nine in May."
    assert table(
        f"<tr><th>Depot</th><th>Code</th></tr><tr><td>Kalo</td><td>is <{element}>Zebra Nine</{element}></td></tr>"
    )[-1] == ("| Kalo | is Zebra Nine |")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Press <button>Save</button> to go on.", "Press Save to go on."),
        ("He said <q>Go on</q> to them.", "He said “Go on” to them."),
        ("The <ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby> sign.", "The 漢(kan) sign."),
        ("The <ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby> sign.", "The 漢字(kanji) sign."),
        ("So <math><mi>x</mi><mo>=</mo><msup><mi>a</mi><mn>2</mn></msup></math> holds.", "So x=a^2 holds."),
        (
            "So <math><munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>"
            "<mi>i</mi></math> holds.",
            "So ∑_(i=1)^ni holds.",
        ),
        (
            "So <math><mfrac><mi>x</mi><mrow><mi>y</mi><mo>+</mo><mn>1</mn></mrow></mfrac></math> holds.",
            "So x/(y+1) holds.",
        ),
        (
            "So <span><span><math><msub><mi>x</mi><mn>1</mn></msub><annotation>x_1</annotation></math></span>"
            "<span aria-hidden=true>x1</span></span> holds.",
            "So x_1 holds.",
        ),
    ],
)
def test_other_words_of_a_sentence(source: str, text: str) -> None:
    assert page(f"<p>{source}</p>") == text


@pytest.mark.parametrize(
    "struck",
    [
        "<del>twelve</del>",
        "<s>twelve</s>",
        "<strike>twelve</strike>",
        "<span style='color: red; text-decoration: line-through'>twelve</span>",
        "<span style='TEXT-DECORATION-LINE:line-through'>twelve</span>",
    ],
)
def test_what_is_struck_out_is_left_out(struck: str) -> None:
    assert page(f"<p>It lasts {struck} <ins>thirty</ins> months.</p>") == "It lasts thirty months."
    assert page(f"<ul><li>It lasts {struck} thirty months.</li></ul>") == "- It lasts thirty months."


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("<p hidden>The old price.</p>", 1),
        ("<div hidden><p>The old</p><p hidden>price.</p></div>", 1),
        ("<template><p>The old price.</p></template>", 1),
        ("<p style='color: red; display : none'>The old price.</p>", 1),
        ("<p style='visibility:hidden'>The old price.</p><p hidden>Another.</p>", 2),
        ("<dialog>The old price.</dialog>", 1),
        ("<nav hidden>The old price.</nav><p hidden></p>", 0),
        # a search field that scripts show, in the side bar of pages that Sphinx makes
        ("<div role=navigation><div style='display: none' role=search><p>Quick search</p></div></div>", 0),
        ("<div role=search style='display: none'><p>Quick search</p></div>", 0),
    ],
)
def test_what_its_author_hid_is_left_out_and_counted(source: str, count: int) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = parse_html(f"<body><p>{AROUND}</p>{source}<p>{AROUND}</p>".encode()).text
    assert found == f"{AROUND}\n{AROUND}"
    elements = "element" if count == 1 else "elements"
    assert [str(one.message) for one in told] == [f"hidden parts left out: {count} {elements}"] * bool(count)


@pytest.mark.parametrize(
    "source",
    [
        "<p hidden=until-found>{}</p>",
        "<div role=tabpanel hidden><p>{}</p></div>",
        "<details><summary>More</summary><p>{}</p></details>",
        "<p style='display:block'>{}</p>",
    ],
)
def test_what_a_reader_sees_or_can_open_is_read(source: str) -> None:
    text = "The price of the pump is 900 crowns."
    assert text in page(source.format(text))


def test_a_page_that_a_script_shows_is_read() -> None:
    assert parse_html(f"<body style='display:none'><p>{AROUND}</p>".encode()).text == AROUND
    with warnings.catch_warnings(record=True) as told:
        wrapped = f"<nav>Menu</nav><div style='visibility:hidden'><p>{AROUND}</p></div>"
        assert AROUND in parse_html(f"<body>{wrapped}<noscript>Enable scripts</noscript>".encode()).text
    assert not told


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (
            "<tr><th>Region<th>Depot<th>Price</tr><tr><td rowspan=2>North<td>Aalby<td>10<tr><td>Birkdal<td>12</tr>",
            ["| Region | Depot | Price |", "|---|---|---|", "| North | Aalby | 10 |", "| North | Birkdal | 12 |"],
        ),
        (
            "<tr><th>Depot<th>May<th>June</tr><tr><td>Aalby<td colspan=2>closed</tr>",
            ["| Depot | May | June |", "|---|---|---|", "| Aalby | closed | closed |"],
        ),
        (
            "<tr><th>Depot<th>May<th>June</tr><tr><td>Aalby<td rowspan=2 colspan=2>closed</tr><tr><td>Birkdal</tr>",
            ["| Depot | May | June |", "|---|---|---|", "| Aalby | closed | closed |", "| Birkdal | closed | closed |"],
        ),
        (
            "<tr><th rowspan=2>Depot<th colspan=2>2023</tr><tr><th>May<th>June</tr><tr><td>Aalby<td>1<td>2</tr>",
            ["| Depot | 2023 May | 2023 June |", "|---|---|---|", "| Aalby | 1 | 2 |"],
        ),
        (
            "<caption>All depots</caption><tr><th>Depot<th>May</tr><tr><td>Aalby<td>1</tr>",
            ["All depots", "| Depot | May |", "|---|---|", "| Aalby | 1 |"],
        ),
        (
            "<thead><tr><td>Depot<td>May</tr></thead><tbody><tr><td>Aalby<td>open</tr></tbody>",
            ["| Depot | May |", "|---|---|", "| Aalby | open |"],
        ),
        (
            "<tr><td>Depot<td>Opened<td>Manager</tr><tr><td>Aalby<td>1958<td>Ada Birk</tr>",
            ["| Depot | Opened | Manager |", "|---|---|---|", "| Aalby | 1958 | Ada Birk |"],
        ),
        (
            "<tr><td><b>Depot</b><td><b>Manager</b></tr><tr><td>Aalby<td>Ada Birk</tr>",
            ["| **Depot** | **Manager** |", "|---|---|", "| Aalby | Ada Birk |"],
        ),
        (  # a menu
            "<tr><td>Introduction<td><td></tr><tr><td>Pumps<td><td></tr>",
            ["| Introduction |  |  |", "| Pumps |  |  |"],
        ),
        (  # a column of headings
            "<tr><th>Manager<td>Ada Birk</tr><tr><th>Opened<td>1958</tr>",
            ["| Manager | Ada Birk |", "| Opened | 1958 |"],
        ),
        (  # neither are headings
            "<tr><td>Manager<td>Ada Birk</tr><tr><td>Deputy<td>Eli Voss</tr>",
            ["| Manager | Ada Birk |", "| Deputy | Eli Voss |"],
        ),
        (
            "<thead><tr><th>Depot<th>Pressure</tr><tr><th><th>bar</tr></thead><tr><td>Aalby<td>40</tr>",
            ["| Depot | Pressure bar |", "|---|---|", "| Aalby | 40 |"],
        ),
        (  # names of groups of rows, and of a row without values
            "<tr><th>Depot<th>May</tr><tr><th colspan=2>North</tr><tr><td>Aalby<td>1</tr>",
            ["| Depot | May |", "|---|---|", "| North |  |", "| Aalby | 1 |"],
        ),
        (
            "<tr><th>Depot<th>May</tr><tr><th>Aalby<td></tr><tr><th>Birkdal<td>2</tr>",
            ["| Depot | May |", "|---|---|", "| Aalby |  |", "| Birkdal | 2 |"],
        ),
        (
            "<tr><th>Depot<th>May</tr><tr><td>Aalby<td rowspan=99999>1</tr><tr><td>Birkdal</tr>",
            ["| Depot | May |", "|---|---|", "| Aalby | 1 |", "| Birkdal | 1 |"],
        ),
    ],
)
def test_every_row_of_a_table_has_all_its_cells_and_headings_only_if_it_has_some(rows: str, lines: list[str]) -> None:
    assert [line.replace("**", "") for line in table(rows)] == [line.replace("**", "") for line in lines]


def test_cells_that_claim_to_span_everything_take_no_memory() -> None:
    rows = "".join(f"<td rowspan=65000 colspan=1000>{n}</td>" for n in range(50))
    assert len(page(f"<table><tr>{rows}</tr>{'<tr></tr>' * 5_000}</table>")) < 100_000
