from evoseek.manual.pages import pages


def test_pages_hold_names_and_docstrings(library):
    found = {page.id: (page.title, page.text) for page in pages(library)}
    assert found["module sea.boats"] == ("sea.boats", "The module sea.boats.\n\nBoats and how they float.")
    assert found["class sea.boats.Ferry"] == (
        "Ferry",
        "Ferry is a class of the module sea.boats. Its base class is Boat.\n\nCarries people.",
    )
    assert found["class sea.boats.Raft"][1].startswith(
        "Raft is a class of the module sea.boats. Its base class is Boat and dict."
    )
    assert found["function sea.boats.launch"] == (
        "launch",
        "launch(boat, *, slowly=True): a function of the module sea.boats.\n\nPut it on the water.",
    )
    assert "module sea" not in found  # it says nothing


def test_a_method_takes_two_searches_to_its_module(library):
    found = {page.id: page for page in pages(library)}
    method = found["method sea.boats.Boat.moor"]
    assert (method.title, method.text) == (
        "Boat.moor",
        "moor is a method of the class Boat.\n\nmoor(self, place='quay')\n\nTie it up.",
    )
    assert "moor" not in found["class sea.boats.Boat"].text


def test_ids_are_unique(library):
    ids = [page.id for page in pages(library)]
    assert len(ids) == len(set(ids)) == 12
