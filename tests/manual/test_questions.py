from evoseek.corpus.demonstrations import demonstration_row
from evoseek.manual.demonstrations import demonstrate
from evoseek.manual.questions import ask


def test_asks_only_what_has_one_answer(library):
    asked = {one.question.text: one.question.golden_answers for one in ask(library)}
    assert asked == {
        "Which module has the class Amphibian?": ("land.cars",),
        "What is the base class of the class Amphibian?": ("Ferry",),
        "Which module has the class Ferry?": ("sea.boats",),
        "What is the base class of the class Ferry?": ("Boat",),
        "Which class has the method board?": ("Ferry",),
        "Which module has the class with the method board?": ("sea.boats",),
        "What is the base class of the class that has the method board?": ("Boat",),
        "Which module has the class Raft?": ("sea.boats",),
    }  # two classes Boat, two methods sink, two bases of Raft


def test_hops_lead_to_the_answer(library):
    one = next(one for one in ask(library) if one.question.id == "method's base: Ferry.board")
    assert one.question.metadata == {"hops": 2, "kind": "method's base"}
    assert one.about == "Ferry"
    assert demonstration_row(demonstrate(one)) == {
        "id": "method's base: Ferry.board",
        "question": "What is the base class of the class that has the method board?",
        "golden_answers": ["Boat"],
        "metadata": {"hops": 2, "kind": "method's base"},
        "turns": [
            {"query": "board"},
            {"think": "board is a method of Ferry.", "query": "class Ferry"},
            {"think": "The base class of Ferry is Boat.", "answer": "Boat"},
        ],
    }
