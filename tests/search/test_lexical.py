"""The lexical index: what it finds, in which order, and that a damaged or half-built one never opens."""

from __future__ import annotations

import asyncio
import json
import math
import random
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.raising import raises

from evoseek.errors import SearchIndexError
from evoseek.protocols import PassageStore, SearchEngine
from evoseek.search import manifest as manifest_module
from evoseek.search.analyser import Analyser
from evoseek.search.lexical import MAX_QUERY_TERMS, LexicalIndex, to_stored
from evoseek.storage.files import json_digest
from evoseek.types import Passage

FIXTURES = Path(__file__).parents[1] / "fixtures"


def passage(identifier: str, text: str, title: str = "") -> Passage:
    return Passage(f"{identifier}#0", identifier, title, text, 0, len(text))


CITIES = [
    passage("kalo", "Kalo is a city. The mayor of Kalo is Meri.", "Kalo"),
    passage("meri", "Meri is a person. Meri was born in Supa.", "Meri"),
    passage("supa", "Supa is a river near Kalo. Kalo lies at Supa, and Kalo is old.", "Supa"),
]


def find(index: LexicalIndex, query: str, k: int = 3) -> list[str]:
    return [found.document_id for found in asyncio.run(index.search([query], k))[0]]


@pytest.fixture
def index(tmp_path: Path) -> LexicalIndex:
    return LexicalIndex.build(tmp_path / "index", CITIES)


@pytest.mark.parametrize("has_title", [False, True])
def test_an_identifier_finds_the_passage_that_has_it_whole(tmp_path: Path, has_title: bool) -> None:
    """The other one has the same words, and comes first where nothing else decides."""

    def named(identifier: str, name: str) -> Passage:
        said = "Some other things are said of it."
        return passage(identifier, said if has_title else f"{name} {said}", name if has_title else "")

    index = LexicalIndex.build(tmp_path / "index", [named("words", "size cache"), named("whole", "cache_size")])
    assert find(index, "cache_size", 1) == ["whole"]
    assert find(index, "cache size", 1) == ["words"]


def test_passages_come_back_as_they_were_given(index: LexicalIndex) -> None:
    assert isinstance(index, SearchEngine)
    assert isinstance(index, PassageStore)
    assert index.is_local
    assert len(index) == 3
    assert list(index.passages()) == CITIES
    assert index.get("meri#0") == CITIES[1]
    for unknown in ("meri", "", "\ud800"):
        with raises("index.no_passage"):
            index.get(unknown)


def test_passages_keep_their_citations(tmp_path: Path) -> None:
    cited = [
        Passage("a#0", "a", "A", "Kalo", 3, 7, file="a.pdf", page=2),
        Passage("b#0", "b", "B", "Meri", 0, 4, file="ü.md", heading="Who"),
        Passage("c#0", "c", "C", "Supa", 0, 4),
    ]
    index = LexicalIndex.build(tmp_path / "index", cited)
    assert list(index.passages()) == cited
    assert replace(index.find("meri", 1)[0], score=None) == cited[1]


def test_a_passage_is_given_with_those_added_before_and_after_it(tmp_path: Path) -> None:
    ids = [f"d{number}#0" for number in (5, 3, 8, 1, 9)]
    index = LexicalIndex.build(tmp_path / "index", [passage(id[:2], f"Text of {id}") for id in ids])
    assert [[p.id for p in index.around(id, 1)] for id in ids] == [ids[:2], ids[:3], ids[1:4], ids[2:], ids[3:]]
    assert [p.id for p in index.around("d8#0", 99)] == ids
    assert index.around("d8#0", 0) == [index.get("d8#0")]
    with raises("index.no_passage"):
        index.around("d7#0", 1)


def test_an_index_of_before_there_were_citations_is_read(tmp_path: Path) -> None:
    """Built by the release that did not have them yet, and recorded more about itself."""
    with ZipFile(FIXTURES / "index_without_citations.zip") as archive:
        archive.extractall(tmp_path)
    before = [Passage("a#0", "a", "Kalo", "Its mayor is Meri.", 0, 18), Passage("b#0", "b", "Vesu", "A river.", 0, 8)]
    index = LexicalIndex.open(tmp_path)
    assert list(index.passages()) == before
    assert find(index, "mayor") == ["a"]


def test_search_is_batched_and_ordered_by_score(index: LexicalIndex) -> None:
    results = asyncio.run(index.search(["who is the MAYOR of Kalo?", "born in supa", "zzz"], 2))
    assert [[found.document_id for found in hits] for hits in results] == [["kalo", "supa"], ["meri", "supa"], []]
    for hits in results:
        scores = [found.score for found in hits]
        assert scores == sorted(scores, reverse=True)
        assert all(score is not None and score > 0 for score in scores)


def test_the_score_is_bm25(tmp_path: Path) -> None:
    """Two passages of 2 and 4 words, `a` in the first only: idf = ln(1 + (2 - 1 + .5) / (1 + .5)) = ln 2, and
    tf / (tf + k1 (1 - b + b 2 / 3)) (k1 + 1) with k1 = 1.2, b = .75 gives ln 2 * 2.2 / 1.9."""
    index = LexicalIndex.build(tmp_path / "i", [passage("1", "a x"), passage("2", "x y z w")])
    [[found]] = asyncio.run(index.search(["a"], 5))
    assert found.score == pytest.approx(math.log(2) * 2.2 / 1.9, abs=1e-4)


def test_the_title_counts_half_once_more(tmp_path: Path) -> None:
    """Of two passages of two words: ln(1 + .5 / 2.5) for a word of both, half of ln(1 + 1.5 / 1.5) for one title's."""
    passages = [passage("text", "kalo", "other"), passage("title", "other", "kalo")]
    index = LexicalIndex.build(tmp_path / "index", passages)
    title, text = index.find("kalo", 2)
    assert (title.document_id, text.document_id) == ("title", "text")
    assert text.score == pytest.approx(math.log(1 + 0.5 / 2.5), abs=1e-3)
    assert title.score == pytest.approx((text.score or 0) + 0.5 * math.log(1 + 1.5 / 1.5), abs=1e-3)


def test_a_passage_is_found_by_its_heading(tmp_path: Path) -> None:
    under = [
        Passage(f"a#{n}", "a", "Logs", "The default is 10.", heading=name) for n, name in enumerate(["size", "age"])
    ]
    index = LexicalIndex.build(tmp_path / "index", under)
    assert [found.id for found in index.find("default age", 2)] == ["a#1", "a#0"]


@given(st.text())
def test_any_text_is_a_safe_query(any_index: LexicalIndex, query: str) -> None:
    [hits] = asyncio.run(any_index.search([query], 2))
    assert len(hits) <= 2


@pytest.fixture(scope="module")
def any_index(tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    return LexicalIndex.build(tmp_path_factory.mktemp("any") / "index", CITIES)


@pytest.mark.parametrize("query", ["", "  ", "?!", 'title:"kalo', "kalo AND NOT (", "+kalo -x^2 ~*", "\ud800\0kalo"])
def test_syntax_means_nothing(index: LexicalIndex, query: str) -> None:
    assert ("kalo" in find(index, query)) == ("kalo" in query)


def test_k_may_be_nothing_or_more_than_there_is(index: LexicalIndex) -> None:
    assert find(index, "kalo", 0) == []
    assert len(find(index, "kalo", 10**12)) == 2
    assert find(index, "kalo " + " ".join(f"w{n}" for n in range(MAX_QUERY_TERMS * 9))) == ["kalo", "supa"]


def test_an_index_may_hold_nothing(tmp_path: Path) -> None:
    index = LexicalIndex.build(tmp_path / "index", [])
    assert (len(index), find(index, "kalo"), list(index.passages())) == (0, [], [])


def test_equal_scores_come_in_the_order_of_adding(tmp_path: Path) -> None:
    names = [f"d{n}" for n in range(300)]
    random.Random(0).shuffle(names)
    index = LexicalIndex.build(tmp_path / "index", [passage(name, "kalo is old", name) for name in names])
    for k in (1, 5, 250):
        assert find(index, "kalo", k) == names[:k]
    assert [found.document_id for found in index.passages()] == names


def test_the_analyser_is_kept_with_the_index(tmp_path: Path) -> None:
    passages = [passage("1", "The cities were running")]
    assert find(LexicalIndex.build(tmp_path / "plain", passages), "city run") == []
    LexicalIndex.build(tmp_path / "stemmed", passages, analyser=Analyser("english"))
    stemmed = LexicalIndex.open(tmp_path / "stemmed")
    assert stemmed.analyser == Analyser("english")
    assert find(stemmed, "city run") == ["1"]


def test_an_index_of_an_earlier_version_is_searched_by_its_own_terms(tmp_path: Path) -> None:
    passages = [passage("a", "كِتَابٌ"), passage("b", "绿茶")]
    queries = ("كِتَابٌ", "كتاب", "绿茶", "茶")
    old = LexicalIndex.build(tmp_path / "index", passages, analyser=Analyser(version=1))
    assert [find(LexicalIndex.open(old.directory), query) for query in queries] == [["a"], [], ["b"], []]
    new = LexicalIndex.build(tmp_path / "index", passages)
    assert [find(new, query) for query in queries] == [["a"], ["a"], ["b"], ["b"]]
    assert old.manifest.identity != new.manifest.identity


def test_how_many_passages_hold_a_word(tmp_path: Path) -> None:
    index = LexicalIndex.build(tmp_path / "index", [passage(str(number), "set cache_size") for number in range(3)])
    assert [index.passages_with(word) for word in ("Set", "cache_size", "size", "sets", "?", "")] == [3, 3, 3, 0, 0, 0]


def test_an_index_whose_statistics_still_count_deleted_documents_is_refused(index: LexicalIndex) -> None:
    path = index.directory / manifest_module.NAME
    written = {**json.loads(path.read_text()), "next_order": 4}
    written["sha256"] = json_digest({key: value for key, value in written.items() if key != "sha256"})
    path.write_text(json.dumps(written))
    with raises("index.deleted_documents", match=r"deleted .* by an earlier version.* Build it again"):
        LexicalIndex.open(index.directory)


def test_what_cannot_be_indexed_leaves_what_was_there(index: LexicalIndex, tmp_path: Path) -> None:
    with raises("index.passage_twice", match="'new#0' comes twice"):
        LexicalIndex.build(index.directory, [passage("new", "x"), passage("new", "y")])
    with raises("index.passage_invalid"):
        LexicalIndex.build(index.directory, [passage("new", "\ud800")])
    assert list(LexicalIndex.open(index.directory).passages()) == CITIES
    with raises("index.passage_twice"):
        LexicalIndex.build(tmp_path / "other", [CITIES[0], CITIES[0]])
    assert not list((tmp_path / "other").glob("data-*"))
    with raises("index.missing", match="no search index"):
        LexicalIndex.open(tmp_path / "other")


def test_one_build_at_a_time_and_what_is_open_stays(index: LexicalIndex) -> None:
    def meanwhile() -> Iterator[Passage]:
        with raises("rows.locked", match=r"Another process is writing .*index"):
            LexicalIndex.build(index.directory, [])
        yield passage("new", "x")

    assert len(LexicalIndex.build(index.directory, meanwhile())) == 1
    assert find(index, "mayor") == ["kalo"]
    assert len([path for path in index.directory.iterdir() if path.name.startswith("data-")]) == 1


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with raises("index.foreign_folder", match=r"thesis\.txt"):
        LexicalIndex.build(tmp_path, CITIES)
    (tmp_path / "file").write_text("")
    with raises("disk.failed", match="cannot be written"):
        LexicalIndex.build(tmp_path / "file" / "index", CITIES)


def files_of(index: LexicalIndex) -> list[Path]:
    return [index.directory / index.manifest.data / name for name in index.manifest.files]


def test_damage_to_any_file_is_found_at_opening(index: LexicalIndex) -> None:
    for path in [index.directory / "manifest.json", *files_of(index)]:
        content = path.read_bytes()
        for damaged in (content[:-2], content[:3] + bytes([content[3] ^ 1]) + content[4:], b""):
            path.write_bytes(damaged)
            with pytest.raises(SearchIndexError, match="evoseek index"):
                LexicalIndex.open(index.directory)
        path.unlink()
        with pytest.raises(SearchIndexError, match="evoseek index"):
            LexicalIndex.open(index.directory)
        path.write_bytes(content)
    assert len(LexicalIndex.open(index.directory)) == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"format_version": 1}, "index.manifest_damaged"),
        ({"analyser": {"version": 1, "stemming": "klingon"}}, "index.manifest_damaged"),
        ({"analyser": {"version": 1, "stemming": "english"}}, "index.manifest_changed"),
        ({"title_boost": 9.0}, "index.manifest_changed"),
        ({"files": {}}, "index.manifest_changed"),
        ({"documents": 9}, "index.manifest_changed"),
        ({"next_order": 1}, "index.manifest_changed"),
        ({"tantivy": "0.1"}, "index.manifest_changed"),
        ({"content": "another"}, "index.manifest_changed"),
        ({"data": "../elsewhere"}, "index.manifest_damaged"),
        ({"more": 1}, "index.manifest_changed"),
    ],
)
def test_a_manifest_that_does_not_fit(index: LexicalIndex, change: dict[str, object], code: str) -> None:
    path = index.directory / manifest_module.NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with raises(code):
        LexicalIndex.open(index.directory)


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        ({"passages": 4}, "index.other_count", " 4 passages|says 4"),
        ({"analyser": manifest_module.AnalyserRecord(version=999, stemming="none")}, "index.other_analyser", "999"),
        ({"data": "data-00"}, "index.damaged", "data-00"),
    ],
)
def test_a_whole_manifest_of_another_index(
    index: LexicalIndex, change: dict[str, object], code: str, value: str
) -> None:
    index.manifest.model_copy(update=change).write(index.directory)
    with raises(code, match=value):
        LexicalIndex.open(index.directory)


def test_an_index_is_what_it_finds_wherever_it_lies(tmp_path: Path) -> None:
    """The same passages, built in the same way, are the same index; else it is another."""
    first = LexicalIndex.build(tmp_path / "a", CITIES)
    identity = first.manifest.identity
    assert LexicalIndex.build(tmp_path / "b", CITIES).manifest.identity == identity
    others = [
        LexicalIndex.build(tmp_path / "c", CITIES[:-1]).manifest.identity,
        LexicalIndex.build(tmp_path / "d", CITIES[::-1]).manifest.identity,
        LexicalIndex.build(tmp_path / "f", CITIES, analyser=Analyser("english")).manifest.identity,
    ]
    assert len({identity, *others}) == 4


def test_an_index_that_tantivy_cannot_read_is_refused(index: LexicalIndex) -> None:
    (path,) = (path for path in files_of(index) if path.name == "meta.json")
    path.write_text("{}")
    index.manifest.files[path.name] = manifest_module.record_file(path)
    index.manifest.write(index.directory)
    with raises("index.unreadable"):
        LexicalIndex.open(index.directory)


BUILD_FOR_EVER = """
    import itertools, sys
    from pathlib import Path
    from evoseek.search.lexical import LexicalIndex
    from evoseek.types import Passage
    def passages():
        for n in itertools.count():
            if n == 5_000:
                print("building", flush=True)
            yield Passage(f"{n}", f"{n}", "", "kalo " * 20)
    LexicalIndex.build(Path(sys.argv[1]), passages())
"""


@pytest.mark.parametrize("there_before", [False, True])
def test_a_killed_build_leaves_what_was_there(tmp_path: Path, there_before: bool) -> None:
    directory = tmp_path / "index"
    if there_before:
        LexicalIndex.build(directory, CITIES)
    command = [sys.executable, "-c", textwrap.dedent(BUILD_FOR_EVER), str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"building\n"
        process.send_signal(signal.SIGKILL)
    assert len(list(directory.glob("data-*"))) == there_before
    assert len(list(directory.glob("building-*"))) == 1
    if there_before:
        assert list(LexicalIndex.open(directory).passages()) == CITIES
    else:
        with raises("index.missing", match="no search index"):
            LexicalIndex.open(directory)
    assert len(LexicalIndex.build(directory, CITIES[:1])) == 1
    assert [path.name[:5] for path in sorted(directory.iterdir())] == [".lock", "data-", "manif"]


def stopping(passages: list[Passage], after: int) -> Iterator[Passage]:
    yield from passages[:after]
    raise KeyboardInterrupt


def test_a_build_that_was_interrupted_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every passage is a commit here, so 31 are there; what the index then is does not tell that there were two builds,
    and many segments."""
    monkeypatch.setattr("evoseek.search.lexical._SAVE_S", 0)
    passages = [replace(passage(f"{n}", f"kalo {n % 7} meri"), document_id=f"{n // 3}") for n in range(40)]
    directory, added = tmp_path / "index", list[int]()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            LexicalIndex.build(directory, stopping(passages, 31), key="k")
    monkeypatch.setattr(
        "evoseek.search.lexical.to_stored",
        lambda passage, order, analyser: added.append(order) or to_stored(passage, order, analyser),
    )
    index = LexicalIndex.build(directory, passages, key="k")
    assert added == list(range(31, 40))
    whole = LexicalIndex.build(tmp_path / "whole", passages)
    assert (index.manifest.content, index.manifest.documents) == (whole.manifest.content, 14)
    assert list(index.passages()) == passages
    assert index.find("kalo 3", 40) == whole.find("kalo 3", 40)
    assert [path.name[:5] for path in sorted(directory.iterdir())] == [".lock", "data-", "manif"]


@pytest.mark.parametrize("key", ["another", None])
def test_a_build_of_other_passages_does_not_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.setattr("evoseek.search.lexical._SAVE_S", 0)
    with pytest.raises(KeyboardInterrupt):
        LexicalIndex.build(tmp_path, stopping(CITIES, 2), key="k")
    assert list(LexicalIndex.build(tmp_path, CITIES[1:], key=key).passages()) == CITIES[1:]


@pytest.mark.parametrize("others", [CITIES[:1], CITIES[1:], [CITIES[1], CITIES[0], CITIES[2]]])
def test_other_passages_with_the_same_key_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[Passage]
) -> None:
    monkeypatch.setattr("evoseek.search.lexical._SAVE_S", 0)
    with pytest.raises(KeyboardInterrupt):
        LexicalIndex.build(tmp_path, stopping(CITIES, 2), key="k")
    with raises("index.changed_meanwhile", match="left 2 passages that are not the first ones"):
        LexicalIndex.build(tmp_path, others, key="k")
    assert list(LexicalIndex.build(tmp_path, others, key="k").passages()) == others


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    from evoseek.errors import SearchIndexError
    from evoseek.search.lexical import LexicalIndex
    from evoseek.types import Passage
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        LexicalIndex.build(Path(sys.argv[1]), (Passage(f"{n}", f"{n}", "", f"kalo {n ** 5}") for n in range(20_000)))
    except SearchIndexError as error:
        print("refused" if "free space" in str(error).lower() else error)
"""


@pytest.mark.parametrize("limit", [100, 50_000])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, limit: int) -> None:
    """A limit on the size of files stands for the disk: both make the write fail."""
    directory = LexicalIndex.build(tmp_path / "index", CITIES).directory
    command = [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(directory), str(limit)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "refused\n"
    assert list(LexicalIndex.open(directory).passages()) == CITIES


def test_an_index_is_opened_without_writing_into_its_folder(index: LexicalIndex) -> None:
    """tantivy puts locks beside the files it opens, and the folder may be read-only."""
    for lock in index.directory.rglob("*.lock"):
        lock.unlink()
    before = sorted(index.directory.rglob("*"))
    opened = LexicalIndex.open(index.directory)
    assert sorted(index.directory.rglob("*")) == before
    assert find(opened, "mayor") == ["kalo"]
    assert list(opened.passages()) == CITIES


def test_of_large_files_the_size_alone_is_compared(index: LexicalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = max((index.directory / index.manifest.data).glob("*.store"))
    monkeypatch.setattr(manifest_module, "_HASHED", largest.stat().st_size - 1)
    text = largest.read_bytes()
    largest.write_bytes(bytes([text[0] ^ 1]) + text[1:])
    index.manifest.check_files(index.directory)
    largest.write_bytes(text[:-1])
    with raises("index.damaged", match=r"bytes where .* were written\. Build"):
        index.manifest.check_files(index.directory)


def test_a_file_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("{}")
    with raises("index.missing", match="is a file, not a search index"):
        LexicalIndex.open(tmp_path / "corpus.jsonl")


def test_a_finished_index_holds_no_locks_and_one_that_was_killed_is_built_over(tmp_path):
    """Two builds have other bytes (tantivy's names are random), and the same contents."""
    passages = [Passage("kalo#0", "kalo", "Kalo", "Kalo lies by the sea.")]
    whole = LexicalIndex.build(tmp_path / "whole", passages)
    killed = tmp_path / "killed" / "data-0123"
    killed.mkdir(parents=True)
    (killed / ".tantivy-writer.lock").touch()
    again = LexicalIndex.build(tmp_path / "killed", passages)
    assert again.manifest.content == whole.manifest.content
    for folder in ("whole", "killed"):
        assert not list((tmp_path / folder).rglob(".tantivy-*.lock"))
        assert len(list((tmp_path / folder).glob("data-*"))) == 1
