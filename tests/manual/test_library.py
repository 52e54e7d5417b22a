import pytest

from evoseek.errors import DataError
from evoseek.manual.library import Entry, read_library, standard_library


def test_reads_what_is_public_in_the_order_of_files(library):
    assert [entry.name for entry in library.modules] == ["land.cars", "sea", "sea.boats"]
    assert [(entry.module, entry.name, entry.bases) for entry in library.classes] == [
        ("land.cars", "Amphibian", ("Ferry",)),
        ("land.cars", "Boat", ()),
        ("sea.boats", "Boat", ()),
        ("sea.boats", "Ferry", ("Boat",)),
        ("sea.boats", "Raft", ("Boat", "dict")),
    ]
    assert library.classes[2].methods == (
        Entry("moor", "sea.boats", "moor(self, place='quay')", "Tie it up."),
        Entry("sink", "sea.boats", "sink(self)", ""),
    )
    assert library.functions == (Entry("launch", "sea.boats", "launch(boat, *, slowly=True)", "Put it on the water."),)


def test_a_folder_without_classes_is_an_error(tmp_path):
    with pytest.raises(DataError, match="holds no Python source with classes"):
        read_library(tmp_path)


def test_the_standard_library_is_here():
    assert (standard_library() / "tarfile.py").is_file()
