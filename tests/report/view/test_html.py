import base64
import gzip
import json
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest

import evoseek
from evoseek.errors import ConfigError, DataError, RunError
from evoseek.report.view.html import data_folder, make_page
from evoseek.report.view.source import RunSource
from evoseek.report.view.table import source_hash

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><!--",
    "\u202e\x00 {{7*7}} ${window.hacked=1} javascript:window.hacked=1",
    '"><svg onload=window.hacked=1>',
)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts of scripts and styles."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.elements and self.elements[-1][0] in ("script", "style") and data.strip():
            self.texts.append((*self.elements[-1], data))


def page_of(*runs, **how):
    return make_page([RunSource.open(run) for run in runs], "view.data", now=NOW, **how)


def index_of(page):
    (text,) = (text for _, attrs, text in Elements(page.html).texts if attrs.get("id") == "index")
    return json.loads(text)


def unpack(text):
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_hostile_text_makes_no_element(make_run, make_row):
    calm = page_of(make_run([make_row(0)], name="calm"))
    rows = [
        make_row(n, question=text, text=text, answer=text, golden=[text], metadata={text: text}, prompt=text)
        for n, text in enumerate(HOSTILE)
    ]
    page = page_of(make_run(rows, name="hostile <b>", config={"run": {"system": HOSTILE[0]}, HOSTILE[2]: HOSTILE[0]}))
    assert [one[0] for one in Elements(page.html).elements] == [one[0] for one in Elements(calm.html).elements]
    texts = r'<script type="application/json".*?</script>|<title>[^<>]*</title>'
    assert "hacked" not in re.sub(texts, "", page.html, flags=re.DOTALL)
    assert [question[1] for question in index_of(page)["runs"][0]["questions"]] == list(HOSTILE)


def test_the_policy_allows_this_script_and_this_style_alone(make_run, make_row):
    page = page_of(make_run([make_row()]))
    found = Elements(page.html)
    (policy,) = (one["content"] for tag, one in found.elements if one.get("http-equiv"))
    (script,) = (text for tag, attrs, text in found.texts if tag == "script" and not attrs)
    (style,) = (text for tag, _, text in found.texts if tag == "style")
    assert policy.split("; ")[:3] == [
        "default-src 'none'",
        f"script-src {source_hash(script)}",
        f"style-src {source_hash(style)}",
    ]
    assert not [
        one for one in found.elements if any(name.startswith("on") or name in ("src", "style") for name in one[1])
    ]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)


def test_small_details_are_in_the_page_and_large_ones_beside_it(make_run, make_row):
    run = make_run([make_row(number) for number in range(130)])
    small, large = page_of(run), page_of(run, inline=0)
    assert small.data == {}
    assert len(re.findall(r'id="chunk-0-\d"', small.html)) == 2
    assert "'strict-dynamic'" not in small.html
    assert sorted(large.data) == ["0-0.js", "0-1.js", "0-tokens.js"]
    assert "'strict-dynamic'" in large.html
    build, key, text = re.fullmatch(r'evoseekChunk\("(\w+)","([\w-]+)","([\w+/=]+)"\)\n', large.data["0-1.js"]).groups()
    assert (build, key) == (index_of(large)["build"], "0-1")
    assert [detail["id"] for detail in unpack(text)] == ["step-000001/q/128", "step-000001/q/129"]


def test_columns_questions_and_episodes(make_run, make_row):
    rows = [
        make_row(0),
        make_row(1, outcome={"invalid": "deadline", "detail": ""}),
        make_row(0, group="g", question="What?"),
    ]
    run = make_run(rows, samples=[{"id": "g/0", "advantages": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}])
    (shown,) = index_of(page_of(run))["runs"]
    assert shown["columns"]["reward"] == [1.0, None, 1.0]
    assert shown["columns"]["invalid"] == [None, "deadline", None]
    assert shown["columns"]["question"] == [0, 0, 1]
    assert shown["columns"]["episode"] == [0, 0, 1]
    assert shown["columns"]["advantage"] == [None, None, 3.5]
    assert shown["questions"] == [["q", "Who?", ["Meri"]], ["q", "What?", ["Meri"]]]


def test_two_runs_with_what_differs_between_their_settings(make_run, make_row):
    first = make_run([make_row()], name="a", config={"run": {"system": "search-r1", "seed": 0}})
    second = make_run([make_row()], name="b", config={"run": {"system": "dr-zero", "seed": 0}})
    index = index_of(page_of(first, second))
    assert [run["system"] for run in index["runs"]] == ["search-r1", "dr-zero"]
    assert index["differences"] == [["run.system", "search-r1", "dr-zero"]]


@pytest.mark.parametrize("metrics", [[], [{"step": 0, "eval/reward": 0.5}]])
def test_a_run_without_rollouts_has_a_page(make_run, metrics):
    (shown,) = index_of(page_of(make_run(metrics=metrics)))["runs"]
    assert shown["columns"]["id"] == []
    assert shown["metrics"]["steps"] == [row["step"] for row in metrics]


def test_a_rollout_with_a_damaged_detail_is_an_error_that_names_its_line(make_run, make_row):
    damaged = make_row(1)
    damaged["segments"][1]["logprobs"] = "none"
    with pytest.raises(DataError, match=r"trajectories\.jsonl:2 is not a rollout"):
        page_of(make_run([make_row(0), damaged]))


def test_the_page_is_written_with_its_data_and_replaces_an_earlier_one(make_run, make_row, tmp_path):
    run, path = make_run([make_row()]), tmp_path / "out" / "view.html"
    page_of(run, inline=0).write(path)
    assert sorted(one.name for one in data_folder(path).iterdir()) == ["0-0.js", "0-tokens.js"]
    page_of(run).write(path)
    assert path.read_text().startswith("<!doctype html>")
    assert not data_folder(path).exists()


def test_nothing_else_is_overwritten(make_run, make_row, tmp_path):
    page = page_of(make_run([make_row()]), inline=0)
    (tmp_path / "mine.html").write_text("my page")
    with pytest.raises(ConfigError, match=r"mine\.html exists already"):
        page.write(tmp_path / "mine.html")
    with pytest.raises(ConfigError, match=r"does not end in \.html"):
        page.write(tmp_path / "notes.txt")
    (tmp_path / "view.data").mkdir()
    (tmp_path / "view.data" / "thesis.doc").write_text("")
    with pytest.raises(ConfigError, match=r"holds thesis\.doc"):
        page.write(tmp_path / "view.html")
    assert not (tmp_path / "view.html").exists()


@pytest.mark.parametrize("inline", [0, 3_000_000])
def test_the_scripts_of_somebody_else_are_no_data_of_a_page(make_run, make_row, tmp_path, inline):
    (tmp_path / "app.data").mkdir()
    (tmp_path / "app.data" / "main.js").write_text("my work")
    with pytest.raises(ConfigError, match=r"holds main\.js"):
        page_of(make_run([make_row()]), inline=inline).write(tmp_path / "app.html")
    assert (tmp_path / "app.data" / "main.js").read_text() == "my work"


def test_a_run_in_a_folder_whose_name_is_not_utf8(make_run, make_row):
    run = make_run([make_row()], name="run-\udcff")
    page_of(run).write(run / "view.html")
    assert "<title>run-? " in (run / "view.html").read_text(encoding="utf-8")


def test_a_name_that_the_disk_refuses_is_an_error_that_says_so(make_run, make_row, tmp_path):
    with pytest.raises(RunError, match="cannot be written"):
        page_of(make_run([make_row()])).write(tmp_path / f"{'x' * 300}.html")


PACKAGE = Path(evoseek.__file__).parent
SCRIPTS = [*(PACKAGE / "report" / "view" / "page").glob("*.js"), *(PACKAGE / "serve" / "page").glob("*.js")]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_asks_an_object_for_a_name_that_every_object_has(script):
    """`"toString" in {}` is true: a page asks by Object.hasOwn, or a Map."""
    code = re.sub(r"""//.*|"[^"\n]*"|'[^'\n]*'|`[^`]*`""", "", script.read_text())
    assert re.findall(r"(?<!const)(?<!let) \w+ in [\w.]+", code) == []
